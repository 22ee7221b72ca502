"""The layers of the tree: which targets and headers each may reach, directly or through others."""

import re

# Cores, and the targets that they must never reach, in words of `bazel query`.
CORES = ("//server/core/...", "//scheduler/core/...", "//worker/core/...")
FORBIDDEN_TO_CORES = ("@grpc//...", "@protobuf//...", "@spdlog//...", "@sqlite3//...",
                      "@posix//:threads", "@absl//:synchronization", "//proto/...")

_PURE_ABSL = r"@absl//:(btree|container|numeric|span|status|strings|time)$"
_PURE_COMMON = (r"//common/(devices|metrics|planted|random|sparse|status|time|types):"
                r"(?!clock$)")
# Parsed in front of every file; what a core may use of it, it must still include (and rules.py
# looks for what it may not).
_PRECOMPILED = r"//common/build_defs:\w+_headers$"
_PURE = f"{_PURE_ABSL}|{_PURE_COMMON}|{_PRECOMPILED}"
# Labels of source files; what they include is checked apart.
FILES = re.compile(r"//[^:]*:.*\.\w+$")


def _rule(layer, of, may_reach=None, never=None, tests=False):
    return {"layer": layer, "of": re.compile(of), "tests": tests,
            "may_reach": re.compile(may_reach) if may_reach else None,
            "never": re.compile(never) if never else None}


# A target that matches `of` reaches only what matches `may_reach`, and nothing that matches
# `never`. Tests and testonly targets are held to it only where `tests` says so.
TARGET_RULES = [
    _rule("a core (tests too) reaches no gRPC, protobuf, log, database or threads",
          r"//(server|scheduler|worker)/core[/:]",
          never=r"@(grpc|protobuf|spdlog|sqlite3|openssl|zlib|zstd|jpeg|png|onednn|cli11)//"
                r"|@posix//:threads"
                r"|@absl//:synchronization|//proto[/:]|//kernels[/:]|//common/observability[/:]"
                r"|//common/net[/:]|-l|-pthread",
          tests=True),
    _rule("a core reaches only pure libraries", r"//server/core[/:]",
          may_reach=f"//server/core[/:]|{_PURE}"),
    _rule("a core reaches only pure libraries", r"//scheduler/core[/:]",
          may_reach=f"//scheduler/core[/:]|{_PURE}"),
    _rule("a core reaches only pure libraries", r"//worker/core[/:]",
          may_reach=f"//worker/core[/:]|{_PURE}"),
    _rule("kernels know nothing of the rest", r"//kernels[/:]",
          never=r"//(server|scheduler|worker|proto|tests)[/:]|@(grpc|protobuf|spdlog|sqlite3)//"
                r"|//common/(net|observability|data|job|model)[/:]",
          tests=True),
    _rule("common knows no daemon", r"//common[/:]",
          never=r"//(server|scheduler|worker|kernels|tests)[/:]"),
    _rule("a daemon knows no other daemon", r"//server[/:]",
          never=r"//(scheduler|worker|tests)[/:]"),
    _rule("a daemon knows no other daemon", r"//scheduler[/:]",
          never=r"//(server|worker|tests)[/:]"),
    # The wheel carries all programs, and links none of them.
    _rule("a daemon knows no other daemon", r"//worker(?!/python:(wheel|.*\.whl)$)[/:]",
          never=r"//(scheduler|tests)[/:]|//server(?!/optimizer)[/:]"),
]

# Headers that no source of a core includes, directly or through the project's own headers. The
# libraries' headers lie where every target sees them, so the targets alone would not tell.
FORBIDDEN_HEADERS = re.compile(
    r"grpc|google/protobuf|.*\.pb\.h$|spdlog/|fmt/|sqlite3|openssl/|zlib|zstd|jpeglib|png|dnnl|CLI/"
    r"|(thread|mutex|shared_mutex|condition_variable|future|semaphore|barrier|latch|stop_token"
    r"|atomic|fstream|iostream|filesystem|chrono|ctime|random|cstdio)$"
    r"|(pthread|unistd|fcntl|stdio|time|signal|poll)\.h$|sys/"
    r"|absl/(synchronization|random|log|debugging)/|absl/time/clock")

# Which dependency an #include of a library stands for: (header, label).
LIBRARY_OF_HEADER = [
    (re.compile(r"grpcpp/|grpc/"), "@grpc//:"),
    (re.compile(r"google/protobuf/"), "@protobuf//:"),
    (re.compile(r"spdlog/|fmt/"), "@spdlog//:"),
    (re.compile(r"sqlite3\.h$"), "@sqlite3//:"),
    (re.compile(r"openssl/"), "@openssl//:"),
    (re.compile(r"zlib\.h$"), "@zlib//:"),
    (re.compile(r"zstd(_errors)?\.h$"), "@zstd//:"),
    (re.compile(r"jpeglib\.h$"), "@jpeg//:"),
    (re.compile(r"png\.h$"), "@png//:"),
    (re.compile(r"dnnl|oneapi/dnnl"), "@onednn//:"),
    (re.compile(r"(cuda_runtime(_api)?|cublasLt|cudnn)\.h$"), "@cuda//:"),
    (re.compile(r"CLI/"), "@cli11//:"),
    (re.compile(r"catch2/"), "@catch2//:"),
    (re.compile(r"(thread|mutex|condition_variable|future)$|pthread\.h$"), "@posix//:threads"),
    (re.compile(r"absl/synchronization/"), "@absl//:synchronization"),
]
