"""Update rules that the operator has added to servers: the same bits as any other rule's, with any
number of servers, when servers die, and when everything does; and what is refused."""

import hashlib
import pathlib
import shutil
import subprocess
import unittest

import clicks
import cluster
import synthetic

SIGNUM = "server/optimizer/plugin/signum.so"
OWN_RULES = "server/optimizer/plugin/own_rules.so"
# It has several shards, so that each server has some.
WIDE = """layers { name: "fc1" fully_connected { units: 300 } }
          layers { name: "out" fully_connected { units: 10 } }"""
RULE = """plugin { rule: "signum" numbers: 0.8 } learning_rate: 0.001 weight_decay: 0.001
          clip_value: 0.5 schedule { warmup_steps: 20 cosine { steps: 900 } }"""


def plugin_flag(path):
    return f"--rule-plugin={path}"


def model_hash(status):
    model = pathlib.Path(status["outputDirectory"], "model.safetensors")
    return hashlib.sha256(model.read_bytes()).hexdigest()


class RulePluginTest(unittest.TestCase):
    def start(self, servers, plugins=(SIGNUM, OWN_RULES), workers=2):
        flags = [plugin_flag(cluster.runfile(plugin)) for plugin in plugins]
        started = cluster.Cluster(servers=servers, workers=workers, server_flags=flags)
        self.addCleanup(started.close)
        return started

    def job(self, on, epochs=8, optimizer=RULE, more="", **arguments):
        return on.submit(synthetic.job(on.folder, model=WIDE, epochs=epochs, optimizer=optimizer,
                                       more=more, **arguments))

    def shards(self, on):
        return {node["nodeId"]: node.get("shards", 0)
                for node in on.json("node", "list")["nodes"] if node.get("alive")}

    def finish(self, on, job):
        status = on.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def refused(self, on, optimizer, *reasons):
        path = on.write_job(synthetic.job(on.folder, optimizer=optimizer))
        said = on.run("job", "submit", str(path), "--no-wait", check=False)
        self.assertEqual(said.returncode, 2, said.stdout + said.stderr)
        for reason in reasons:
            self.assertIn(reason, said.stderr)

    def restart_all(self, on):
        """Kills every daemon at once, and starts all of them again."""
        for daemon in on.daemons.values():
            daemon.process.kill()
        for name, daemon in on.daemons.items():
            daemon.process.wait()
            if name == "scheduler":
                daemon.command = [f"--listen={on.scheduler}" if argument.startswith("--listen")
                                  else argument for argument in daemon.command]
        for daemon in on.daemons.values():
            daemon.start()
            daemon.address()

    def test_any_number_of_servers_and_any_of_their_deaths_give_the_same_bits(self):
        one = self.start(servers=1)
        expected = model_hash(self.finish(one, self.job(one)))
        one.close()
        three = self.start(servers=3)
        with self.subTest("three servers"):
            self.assertEqual(model_hash(self.finish(three, self.job(three))), expected)
        with self.subTest("three servers, one of which is killed"):
            job = self.job(three, resources="replicas: 1")
            three.wait_iteration(job, 100)
            self.assertTrue(all(self.shards(three)[f"server-{i}"] > 0 for i in range(3)))
            three.daemons["server-1"].kill()
            self.assertEqual(model_hash(self.finish(three, job)), expected)
            three.daemons["server-1"].start()
            three.wait_for_nodes(5)
        with self.subTest("all daemons are killed"):
            job = self.job(three, more="durability: LOG")
            three.wait_iteration(job, 100)
            self.restart_all(three)
            self.assertEqual(model_hash(self.finish(three, job)), expected)

    def test_a_plugin_gives_the_bits_of_the_server_s_own_rule(self):
        on = self.start(servers=2)
        rest = " learning_rate: 0.05 weight_decay: 0.001 clip_value: 0.5"
        own = model_hash(self.finish(on, self.job(on, optimizer="momentum {}" + rest)))
        plugin = self.job(on, optimizer='plugin { rule: "momentum" }' + rest)
        self.assertEqual(model_hash(self.finish(on, plugin)), own)

    def test_rows_of_a_sparse_table_get_the_bits_of_the_server_s_own_rule(self):
        on = self.start(servers=2)
        hashes = []
        for rule in ("adam { epsilon: 1e-8 }", 'plugin { rule: "adam" }'):
            text = clicks.job(train=4000, test=500, epochs=2, consistency="bsp {}",
                              optimizer=f"{rule} learning_rate: 0.01", resources="replicas: 1")
            hashes.append(model_hash(self.finish(on, on.submit(text))))
        self.assertEqual(hashes[0], hashes[1])

    def test_a_job_that_names_an_unknown_rule_is_refused_with_what_servers_have(self):
        on = self.start(servers=1, workers=0)
        on.server_flags = []
        on.add("server", 1)
        on.wait_for_nodes(2)
        self.refused(on, 'plugin { rule: "sigmun" } learning_rate: 1',
                     'optimizer.plugin.rule: got "sigmun", expected a rule that a live server has '
                     "by --rule-plugin: server-0 has adagrad_from_half and adam and momentum and "
                     "signum, server-1 has none")
        self.refused(on, 'plugin { rule: "sigmun!" } learning_rate: 1', "job.textproto:",
                     'optimizer.plugin.rule: got "sigmun!", expected the name of a rule')

    def test_numbers_that_the_rule_does_not_want_fail_the_job(self):
        on = self.start(servers=1)
        for numbers, reason in (
                ("[0.5, 1]", "got 2 numbers, expected the 1 of signum, or none"),
                ("[1.5]", "got 1.5: signum says beta: expected [0, 1)")):
            job = self.job(on, optimizer=f'plugin {{ rule: "signum" numbers: {numbers} }} '
                                         "learning_rate: 1")
            failure = on.wait(job)["failure"]
            self.assertEqual(failure["reason"], "USER_ERROR")
            self.assertIn("server-0: making tables: optimizer.plugin.numbers: " + reason,
                          failure["message"])

    def test_servers_without_the_rule_hold_nothing_of_the_job(self):
        on = self.start(servers=1)
        with_plugin, on.server_flags = on.server_flags, []
        on.add("server", 1)
        on.wait_for_nodes(4)
        job = self.job(on, epochs=10000)
        on.wait_iteration(job, 20)
        shards = self.shards(on)
        self.assertGreater(shards["server-0"], 0)
        self.assertEqual(shards["server-1"], 0)
        described = on.run("node", "describe", "server-0").stdout
        self.assertIn("signum, plugin SHA-256 ", described)
        # A server that is left moves its shards to the one with the rule.
        on.server_flags = with_plugin
        on.add("server", 2)
        on.wait_for_nodes(5)
        on.run("node", "drain", "server-0")
        shards = self.shards(on)
        self.assertEqual((shards["server-0"], shards["server-1"]), (0, 0))
        self.assertGreater(shards["server-2"], 0)
        on.run("job", "stop", job)

    def test_a_job_waits_for_as_many_servers_with_the_rule_as_it_asks_for(self):
        on = self.start(servers=1)
        with_plugin, on.server_flags = on.server_flags, []
        on.add("server", 1)
        on.wait_for_nodes(4)
        job = self.job(on, servers=2)
        detail = on.status(job)["detail"]
        self.assertIn("needs 2 servers with update rule signum of the plugin with SHA-256 ", detail)
        self.assertIn("1 is alive (without it: server-1; start them with --rule-plugin)", detail)
        on.server_flags = with_plugin
        on.add("server", 2)
        self.finish(on, job)

    def other_file(self, on):
        """A plugin with the same rule in another file."""
        path = on.folder / "other.so"
        shutil.copyfile(cluster.runfile(SIGNUM), path)
        with open(path, "ab") as out:
            out.write(b"other")
        path.chmod(0o755)
        return path

    def give_other_file(self, on, name):
        """Kills a server, and starts it with another file of the plugin."""
        server = on.daemons[name]
        server.kill()
        other = self.other_file(on)
        server.command.remove(plugin_flag(cluster.runfile(SIGNUM)))
        server.command.append(plugin_flag(other))
        server.start()
        digest = hashlib.sha256(other.read_bytes()).hexdigest()
        cluster.until(f"{name} has the other file", lambda: any(
            rule["digest"] == digest for node in on.json("node", "list")["nodes"]
            if node["nodeId"] == name for rule in node.get("pluginRules", [])))

    def test_servers_with_another_file_hold_nothing_of_the_job(self):
        on = self.start(servers=2, plugins=(SIGNUM,))
        job = self.job(on, epochs=30, resources="replicas: 1")
        on.wait_iteration(job, 50)
        self.give_other_file(on, "server-1")
        iteration = int(on.status(job)["iteration"])
        on.wait_iteration(job, iteration + 20)
        shards = self.shards(on)
        self.assertEqual(shards["server-1"], 0)
        self.refused(on, RULE, "which servers have from different files, expected one file on all "
                               "of them, or its SHA-256 in optimizer.plugin.digest: server-0 has ")
        self.finish(on, job)

    def test_a_checkpoint_is_not_gone_on_from_with_another_file(self):
        on = self.start(servers=1, plugins=(SIGNUM,))
        job = self.job(on, epochs=100)
        on.wait_iteration(job, 20)
        on.run("job", "stop", "--save", job)
        on.wait(job)
        self.give_other_file(on, "server-0")
        said = on.run("job", "resume", job, "--no-wait", check=False)
        self.assertEqual(said.returncode, 2, said.stdout + said.stderr)
        self.assertIn("optimizer.plugin.digest: ", said.stderr)
        self.assertIn("start servers with that file", said.stderr)

    def test_a_server_does_not_start_with_a_plugin_that_it_cannot_trust(self):
        on = self.start(servers=0, plugins=(), workers=0)
        writable = self.other_file(on)
        writable.chmod(0o777)
        for path, reason in ((writable, "neither its group nor others may write it"),
                             (on.folder / "none.so", "cannot be read")):
            command = [cluster.runfile("server/capstan-server"), f"--scheduler={on.scheduler}",
                       "--listen=127.0.0.1:0", plugin_flag(path)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False,
                                   timeout=60 * cluster.SLOWDOWN)
            self.assertEqual(ended.returncode, 1, ended.stderr)
            self.assertIn(f"--rule-plugin: {path}: ", ended.stdout + ended.stderr)
            self.assertIn(reason, ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main()
