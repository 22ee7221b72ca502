"""Tests of the linter itself: every rule finds what it is for and leaves good code alone."""

import os
import tempfile
import unittest

import build_graph
import class_sizes
import house
import layering_test
import rules


def lines(rule, text, path="server/core/a.cc"):
    return [line for line, _ in rule(path, text)]


class FileRules(unittest.TestCase):
    def test_columns(self):
        self.assertEqual(lines(rules.columns, "x" * 100 + "\n" + "é" * 101), [2])
        self.assertEqual(lines(rules.columns, "x" * 101, "README.md"), [1])
        self.assertEqual(lines(rules.columns, "x" * 101, "table.csv"), [])

    def test_whitespace(self):
        self.assertEqual(lines(rules.whitespace, "a\nb \n\tc\nd"), [2, 3, 4])
        self.assertEqual(lines(rules.whitespace, "a\n"), [])

    def test_file_length(self):
        self.assertEqual(lines(rules.file_length, "\n" * 499, "tests/a.py"), [])
        self.assertEqual(lines(rules.file_length, "\n" * 500, "tests/a.py"), [500])
        for path in ("scheduler/core/BUILD.bazel", "proto/job.proto", "server/core/a.cc"):
            self.assertEqual(lines(rules.file_length, "\n" * 500, path), [], path)

    def test_class_size(self):
        sizes = [class_sizes.ClassSize("a.h", "Small", 800, 25),
                 class_sizes.ClassSize("b.h", "Long", 801, 25),
                 class_sizes.ClassSize("c.h", "Wide", 800, 26)]
        self.assertEqual([path for path, _ in rules.class_size(sizes)], ["b.h", "c.h"])

    def test_header(self):
        good = "// A: what.\n#ifndef CAPSTAN_SERVER_A_H_\n#define CAPSTAN_SERVER_A_H_\n#endif\n"
        self.assertEqual(lines(rules.header, good, "server/a.h"), [])
        self.assertEqual(lines(rules.header, good, "server/b.h"), [1, 1])
        self.assertEqual(lines(rules.header, good[good.index("#"):], "server/a.h"), [1])

    def test_open_ends(self):
        todo = "TO" + "DO"
        text = f"// {todo}: x\n// {todo}(#12): x\n// WAITING -> {todo} -> DONE\nint {todo}: x\n"
        self.assertEqual(lines(rules.open_ends, text), [1, 4])
        self.assertEqual(lines(rules.open_ends, "<" * 7 + " a\n" + "=" * 7 + "\n" + "=" * 8),
                         [1, 2])

    def test_fragments(self):
        text = ("// Of a row.\nint a;  // Who waits.\n"
                "// A row. Those of\n// a table. Whose it is.\n"
                "// The rows. What they hold is here,\n// of a table that lives.\n"
                "int b = c / d;  // Ofc.\n")
        self.assertEqual(lines(rules.fragments, text), [1, 2, 3])
        mark = "#"
        text = (f'def a():\n    """What a is."""\n    {mark} Half of it.\n'
                f'    return "// Of"  {mark} Of it.\n')
        self.assertEqual(lines(rules.fragments, text, "a.py"), [2, 3, 4])

    def test_test_names(self):
        text = 'TEST_CASE("Shard: adds", "[x]") {}\nTEST_CASE("adds") {}\n'
        self.assertEqual(lines(rules.test_names, text, "server/a_test.cc"), [2])

    def test_test_namespace(self):
        text = "namespace capstan::server::a_test {\nnamespace {\n"
        self.assertEqual(lines(rules.test_namespace, text, "server/a_test.cc"), [])
        self.assertEqual(lines(rules.test_namespace, text, "server/b_test.cc"), [1])
        self.assertEqual(lines(rules.test_namespace, text, "server/b.cc"), [])

    def test_readme(self):
        tree = ["big/README.md", "big/a.h", "big/small/a.h", "big/small/b/c.h",
                "alone/BUILD.bazel", *[f"big/many/{i}.cc" for i in range(6)]]
        self.assertEqual([folder for folder, _ in rules.readme(tree)], ["big/many", "big/small/b"])


class House(unittest.TestCase):
    def test_a_class_is_its_declaration_and_all_its_functions(self):
        sizes = class_sizes.of({
            "server/a.h": "class A final : public B {\n public:\n  A();\n  int x() const;\n"
                          "\n private:\n  void Hide();\n  int x_;\n};\n",
            "server/a.cc": "namespace c {\nA::A() {\n}\nint Free() {\n  return A::x();\n}\n",
            "server/more.cc": "absl::Status A::Hide() {\n  x_ = 1;\n}\n",
            "server/a_test.cc": "void A::Test() {\n}\n",
            "worker/a.cc": "void A::Other() {\n}\n",
        })
        self.assertEqual(sizes, [class_sizes.ClassSize("server/a.h", "A", 9 + 2 + 3, 2)])

    def test_lines_are_the_products_or_the_tests(self):
        product, tests = house.lines_by_folder({
            "server/a.cc": "1\n2\n", "server/a_test.cc": "1\n", "proto/a.proto": "1\n",
            "kernels/cuda/emulation/a.cc": "1\n2\n3\n", "server/README.md": "1\n"})
        self.assertEqual(product, {("server", "C++"): 2, ("proto", "proto"): 1})
        self.assertEqual(tests, {"C++": 4})


class Banned(unittest.TestCase):
    def test_everywhere(self):
        for bad in ("int x = rand();", "std::srand(1);", "exit(1);", "std::exit(0);", "usleep(5);",
                    "absl::SleepFor(x);", "std::this_thread::sleep_for(x);", "throw 1;",
                    "using namespace std;"):
            self.assertEqual(lines(rules.banned, bad, "server/a.cc"), [1], bad)
        for good in ("child.exit(1);", "brand();", "// exit(1)", 'Log("exit(1)");', "OnExit(1);",
                     "std::mutex m;", "absl::Now();", "at_exit(1);", "int size = operand(3);"):
            self.assertEqual(lines(rules.banned, good, "server/a.cc"), [], good)
        self.assertEqual(lines(rules.banned, "exit(1);", "server/server_main.cc"), [])

    def test_in_cores(self):
        for bad in ("absl::Now();", "std::chrono::steady_clock::now();", "std::thread t;",
                    "std::mutex m;", "absl::Mutex m;", 'fopen("a", "r");', "std::ifstream f;",
                    "spdlog::info(1);", "grpc::Status s;", "v1::PushRequest r;", "time(nullptr);",
                    "std::cout << 1;", "std::mt19937 g;", "LogInfo({}, x);"):
            self.assertEqual(lines(rules.banned, bad), [1], bad)
            self.assertEqual(lines(rules.banned, bad, "server/service.cc"), [], bad)
        for good in ("Instant now;", "absl::Duration d;", "reopen(1);", "uptime(1);", "x.time();"):
            self.assertEqual(lines(rules.banned, good), [], good)

    def test_hash_order(self):
        text = "absl::flat_hash_map<int, A> m_;\nfor (auto& [k, v] : m_) {}\nfor (int i : v_) {}\n"
        self.assertEqual(lines(rules.hash_order, text), [2])
        self.assertEqual(lines(rules.hash_order, text, "server/service.cc"), [])


class FunctionLength(unittest.TestCase):
    LONG = "  x;\n" * 70

    def found(self, head, tail="}\n"):
        return lines(rules.function_length, head + "\n" + self.LONG + tail)

    def test_functions(self):
        for head in ("void F() {", "int A::F(int x = 3) const {",
                     "auto F() -> std::pair<int, int> {",
                     "A::A(int x) : a_(x), b_{x} {", "A::A()\n    : a_{1},\n      b_(2) {",
                     "bool operator==(A a, A b) {", "template <typename T>\nvoid F(T (*f)(int)) {",
                     'TEST_CASE("A: b", "[c]") {',
                     "namespace n {\nclass A : public B {\nvoid F() {"):
            self.assertTrue(self.found(head), head)

    def test_others(self):
        for head in ("namespace n {", "class A : public B<int> {", "struct A {", "enum class E {",
                     "constexpr int kTable[] = {", "extern \"C\" {", "const auto f = G({",
                     "union U {"):
            self.assertEqual(self.found(head), [], head)

    def test_limit(self):
        self.assertEqual(lines(rules.function_length, "void F() {\n" + "  x;\n" * 68 + "}\n"), [])
        self.assertEqual(lines(rules.function_length, "void F() {\n" + "  x;\n" * 69 + "}\n"), [1])

    def test_literals(self):
        text = "void F() {\n  char c = '{'; // {\n  G(\"{\\\"{\", R\"(\"{)\", 1'000);\n}\n"
        text += "\n" * 80
        self.assertEqual(lines(rules.function_length, text + "int x;\n"), [])

    def test_python(self):
        text = "def f():\n" + "    x\n" * 70
        self.assertEqual(lines(rules.function_length, text, "tests/a.py"), [1])


class Layers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, files):
        for path, text in files.items():
            full = os.path.join(self.folder.name, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        return self.folder.name, sorted(files)

    def messages(self, files):
        root, paths = self.write(files)
        targets = build_graph.read_targets(root, paths)
        return list(layering_test.check_targets(targets))

    def test_a_core_that_reaches_grpc_through_a_macro(self):
        files = {
            "defs/m.bzl": 'def lib(name, deps = []):\n'
                          '    native.cc_library(name = name, deps = deps + ["@grpc//:grpc++"])\n',
            "common/time/BUILD.bazel": 'load("//defs:m.bzl", "lib")\nlib(name = "instant")\n',
            "server/core/BUILD.bazel": 'cc_library(name = "shard", deps = [\n'
                                       '  "//common/time:instant"] + select({"//x": [":b"]}))\n',
        }
        found = "\n".join(self.messages(files))
        self.assertIn("//server/core:shard reaches @grpc//:grpc++", found)
        self.assertIn("//server/core:shard -> //common/time:instant -> @grpc//:grpc++", found)

    def test_a_macro_that_derives_sources_and_a_test(self):
        root, paths = self.write({
            "defs/m.bzl": 'def lib(name, deps, test_deps):\n'
                          '    native.cc_library(name = name, deps = deps,\n'
                          '        srcs = native.glob([name + ".cc"], allow_empty = True),\n'
                          '        hdrs = native.glob([name + ".h"], allow_empty = True))\n'
                          '    native.cc_test(name = name + "_test", deps = test_deps)\n',
            "server/core/BUILD.bazel": 'load("//defs:m.bzl", "lib")\nlib(name = "shard",\n'
                                       '  deps = [":b"], test_deps = ["@grpc//:grpc++"])\n',
            "server/core/shard.h": "#include <mutex>\n",
        })
        targets = build_graph.read_targets(root, paths)
        self.assertEqual(targets["//server/core:shard"].sources, ["server/core/shard.h"])
        self.assertIn("//server/core:shard_test reaches @grpc//:grpc++",
                      "\n".join(layering_test.check_targets(targets)))
        self.assertIn("includes mutex, expected @posix//:threads in the deps of",
                      "\n".join(layering_test.check_declared(root, set(paths), targets)))

    def test_forbidden_and_allowed_dependencies_of_a_core(self):
        def found(dep, rule="capstan_cc_library"):
            return self.messages({"worker/core/BUILD.bazel":
                                  f'{rule}(name = "a", srcs = ["a.cc"], deps = ["{dep}"])\n'})

        for dep in ("@posix//:threads", "@absl//:synchronization", "@spdlog", "//proto:job_proto",
                    "//common/net/grpc:channel", "//common/time:clock", "//server/core:shard"):
            self.assertTrue(found(dep), dep)
        for dep in ("@absl//:status", "//common/time:instant", "//common/types:ids", ":b"):
            self.assertEqual(found(dep), [], dep)
        self.assertTrue(found("@grpc//:grpc++", "capstan_cc_test"))
        self.assertEqual(found("@catch2", "capstan_cc_test"), [])

    def test_a_linker_flag_is_a_dependency(self):
        self.assertTrue(self.messages(
            {"server/core/BUILD.bazel": 'cc_library(name = "a", linkopts = ["-lgrpc"])\n'}))

    def test_daemons_and_kernels_are_apart(self):
        def found(package, dep):
            return self.messages({f"{package}/BUILD.bazel": f'lib(name = "a", deps = ["{dep}"])\n'})

        for package, dep in (("kernels", "//proto:job_proto"), ("server", "//worker/client:c"),
                             ("scheduler/cli", "//server:s"), ("common/net", "//server:s"),
                             ("worker/task", "//scheduler/core:leases")):
            self.assertTrue(found(package, dep), package)
        self.assertEqual(found("worker/training", "//kernels/cpu"), [])

    def test_what_cores_include(self):
        root, paths = self.write({
            "common/types/a.h": "#include <mutex>\n",
            "server/core/a.cc": '#include "common/types/a.h"\n// #include <thread>\n',
            "server/core/b.cc": "#include <map>\n",
            "server/core/b_test.cc": "#include <thread>\n",
        })
        found = list(layering_test.check_core_includes(root, paths))
        self.assertEqual(len(found), 1, found)
        self.assertIn("server/core/a.cc includes <mutex> (common/types/a.h:1)", found[0])

    def test_includes_are_declared(self):
        root, paths = self.write({
            "a/BUILD.bazel": 'cc_library(name = "a", hdrs = ["a.h"])\n',
            "a/a.h": "",
            "b/BUILD.bazel": 'cc_library(name = "b", srcs = ["b.cc"], deps = ["//a"])\n'
                             'cc_library(name = "c", srcs = ["c.cc"])\n',
            "b/b.cc": '#include "a/a.h"\n',
            "b/c.cc": '#include "a/a.h"\n#include <thread>\n',
        })
        targets = build_graph.read_targets(root, paths)
        found = list(layering_test.check_declared(root, set(paths), targets))
        self.assertEqual(len(found), 2, found)
        self.assertIn("b/c.cc:1: includes a/a.h, expected //a:a in the deps of //b:c", found)

    def test_folders_include_no_circle(self):
        files = {
            "a/a.h": '#include "b/b.h"\n',
            "b/b.h": "",
            "b/testing/fixture.h": '#include "a/a.h"\n',
            "b/b_test.cc": '#include "a/a.h"\n',
            "c/c.h": '#include "a/a.h"\n',
        }
        self.assertEqual(list(layering_test.check_circles(*self.write(files))), [])
        files["b/d.cc"] = '#include "b/b.h"\n#include "c/c.h"\n'
        found = list(layering_test.check_circles(*self.write(files)))
        self.assertEqual(len(found), 1, found)
        for way in ("a/a.h:1 includes b/b.h", "b/d.cc:2 includes c/c.h", "c/c.h:1 includes a/a.h"):
            self.assertIn(way, found[0])

    def test_a_macro_that_takes_a_folder(self):
        root, paths = self.write({
            "defs/m.bzl": 'def lib(apart, deps):\n'
                          '    tests = native.glob(["*_test.cc"], exclude = apart)\n'
                          '    native.cc_library(name = "a", deps = deps,\n'
                          '        hdrs = native.glob(["*.h", "*.cc"], exclude = apart + tests))\n',
            "a/BUILD.bazel": 'load("//defs:m.bzl", "lib")\nlib(["main.cc"], [":b"])\n',
            "a/a.h": "", "a/a.cc": "", "a/a_test.cc": "", "a/main.cc": "", "a/b/c.h": "",
        })
        targets = build_graph.read_targets(root, paths)
        self.assertEqual(sorted(targets["//a:a"].sources), ["a/a.cc", "a/a.h"])


if __name__ == "__main__":
    unittest.main()
