"""`divvy collocate` as a user runs it, on a simulated node."""

import csv
import glob
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

DIVVY, SIM_JOB = os.environ["DIVVY"], os.environ["SIM_JOB"]

# No run here is as long as its limit, unless it is to fail by it.
COUNTING = "i=0; while [ $i -lt 15 ]; do i=$((i+1)); echo step $i; sleep 0.02; done"
JOBS = f"""
gpu: {{kind: H200-141GB, power: 700}}
jobs:
  - name: trainer
    command: [{SIM_JOB}, train, --kernels, '10', --us, '300', --blocks, '64', --steps, '40']
    profile: {{utilisation: 0.9}}
  - name: counter
    command: "{COUNTING}"
    progress: step ([0-9]+)
    profile: {{utilisation: 0}}
run: {{warmup: 0s, limit: 50s}}
"""


class Collocate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="divvy-collocate-")
        self.addCleanup(self.folder.cleanup)
        at = self.path
        os.mkdir(at("boards"))
        self.environment = {
            **os.environ, "DIVVY_NVML": os.environ["NVML_SIM"], "DIVVY_NVML_SIM_STATE": at("node"),
            "DIVVY_CUDA_SIM": at("gpu"), "DIVVY_CUDA_SIM_SPEC": "gpus=1 sms=16 memory=8GiB mode=mps",
            "DIVVY_BOARD_DIR": at("boards"), "LD_LIBRARY_PATH": os.environ["CUDA_SIM"], "XDG_STATE_HOME": at("state"),
            "XDG_RUNTIME_DIR": at(""), "FAKE_MPS_LOG": at("mps.log"), "PATH": os.environ["FAKE_MPS"] + ":/usr/bin:/bin"}
        self.make_node("--cuda")

    def make_node(self, *options):
        subprocess.run([os.environ["NVML_SIM_TOOL"], "init", self.path("node"), "--gpus", "H200-141GB", "--force", *options],
                       check=True, stdout=subprocess.DEVNULL)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def rows(self, name="jobs.runs.csv"):
        with open(self.path(name)) as file:
            return list(csv.DictReader(file))

    def begin(self, jobs, *options):
        return subprocess.Popen([DIVVY, "collocate", jobs, *options], env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run_to_end(self, jobs, *options, status=0):
        process = self.begin(jobs, *options)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def left_behind(self):
        """Processes with our folder in their environment."""
        found = []
        for file in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(file, "rb") as environment:
                    if self.folder.name.encode() in environment.read():
                        found.append(file)
            except OSError:
                pass
        return found

    def test_alone_and_together(self):
        jobs = self.write("jobs.yaml", JOBS)
        out, _ = self.run_to_end(jobs, "--gpu", "0", "--html", self.path("page.html"), "--prometheus", self.path("p.prom"),
                                 "--mlflow", self.path("mlruns"), "--history", self.path("learned.csv"), "-o", "json")
        found = json.loads(out)
        modes = {one["mode"]: one for one in found["together"]}
        self.assertEqual(set(modes), {"time-slicing", "mps", "gate"})
        for one in modes.values():
            trainer, counter = one["jobs"]
            self.assertGreater(trainer["together"]["seconds"], 0)
            self.assertGreater(counter["speed"], 0)
            self.assertAlmostEqual(one["work"], trainer["speed"] + counter["speed"], places=2)
        self.assertEqual([one["workload"] for one in found["not_done"]], ["all, mig"] * 2)
        # Who asked for MPS got a daemon, of which nothing is left; so is nothing of the jobs.
        with open(self.path("mps.log")) as log:
            starts = [line.split()[3:] for line in log if line.startswith("start ")]
        # Each workload of its own: mps and gate follow each other, and MPS alone is without the gate.
        self.assertEqual([[os.path.basename(path) for path in preloaded] for preloaded in starts],
                         [[], ["libdivvy_gate.so"]])
        # The daemon's keeper ends when nobody uses it any more.
        deadline = time.monotonic() + 30
        while self.left_behind() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.left_behind(), [])
        # What NVML told of the GPU: the trainer keeps it busy, and the other job does not know it.
        alone = {row["job"]: row for row in self.rows() if row["mode"] == "alone"}
        for column, idle in (("gpu_busy", 0), ("sm_active", 0), ("power_w", 75)):
            self.assertAlmostEqual(float(alone["counter"][column]), idle, delta=0.1)
            self.assertGreater(float(alone["trainer"][column]), idle + 0.2)
        # All of it stands in the table, and what was measured is there to be learned from.
        self.assertEqual({row["state"] for row in self.rows()}, {"done", "skipped"})
        with open(self.path("learned.csv")) as file:
            learned = list(csv.DictReader(file))
        self.assertEqual([row["mode"] for row in learned], ["time-slicing"] * 2 + ["mps"] * 2 + ["gate"] * 2)
        with open(self.path("p.prom")) as file:
            self.assertIn('divvy_collocate_speed_ratio{workload="all, gate",mode="gate",job="trainer",copy="1"} ', file.read())
        with open(self.path("page.html")) as file:
            self.assertIn("all, gate", file.read())
        runs = glob.glob(self.path("mlruns/*/*/meta.yaml"))
        self.assertEqual(len(runs), 2 + 3 * 2)
        for run in runs:
            metrics = glob.glob(os.path.join(os.path.dirname(run), "metrics", "*"))
            self.assertIn("cpu_seconds", {os.path.basename(name) for name in metrics})
        # Nothing is left to run: a second time shows the same, timelines included.
        again, err = self.run_to_end(jobs, "-o", "json")
        self.assertEqual(json.loads(again)["together"], found["together"])
        self.assertEqual(set(found["timelines"]), {"trainer alone", "counter alone", *(f"all, {mode}" for mode in modes)})
        self.assertTrue(any(found["timelines"].values()))
        self.assertEqual(json.loads(again)["timelines"], found["timelines"])
        self.assertNotIn("[1/", err)

    def test_shares_go_by_what_the_jobs_need(self):
        # The trainer keeps the GPU busy for nine tenths of the time, the other job not at all: a tenth counts at least.
        self.run_to_end(self.write("jobs.yaml", JOBS), "--modes", "mps-shares")
        self.assertEqual({row["job"]: row["share"] for row in self.rows() if row["mode"] == "mps-shares"},
                         {"trainer": "87", "counter": "12"})
        self.assertEqual({row["state"] for row in self.rows()}, {"done"})

    def test_goes_on_after_a_kill(self):
        jobs = self.write("jobs.yaml", JOBS)
        process = self.begin(jobs, "--modes", "time-slicing")
        for line in process.stderr:
            if line.startswith("[2/"):  # The first is done and saved.
                break
        process.kill()
        process.communicate()
        states = [row["state"] for row in self.rows()]
        self.assertEqual(states, ["done", "", "", ""])
        first = self.rows()[0]
        deadline = time.monotonic() + 30
        while self.left_behind() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.left_behind(), [])
        _, err = self.run_to_end(jobs)
        self.assertIn("[1/2] counter alone", err)
        self.assertEqual(self.rows()[0], first)
        self.assertEqual({row["state"] for row in self.rows()}, {"done"})

    def test_a_table_of_ones_own_and_what_fails(self):
        jobs = self.write("jobs.yaml", f"""
gpu: {{kind: H200-141GB}}
jobs:
  - {{name: quick, command: [/bin/true]}}
  - {{name: broken, command: "echo oops >&2; exit 3"}}
  - {{name: waits, command: "echo READY; read x; echo took 7.5 ms", ready: ^READY$, waits: true, latency: 'took ([0-9.]+) ms'}}
run: {{warmup: 0s, limit: 50s}}
""")
        runs = self.write("runs.csv", "workload,mode,job\nq,alone,quick\nw,alone,waits\n"
                          "two,time-slicing,quick\ntwo,time-slicing,waits\nb,time-slicing,broken\nb,time-slicing,quick\n")
        _, err = self.run_to_end(jobs, "--runs", runs, "--mlflow", self.path("mlruns"), status=1)
        self.assertIn("broken ended with exit status 3", err)
        ends = []
        for path in glob.glob(self.path("mlruns/*/*/meta.yaml")):
            with open(path) as meta:
                ends += [line.strip() for line in meta if line.startswith("status:")]
        self.assertEqual(sorted(ends), ["status: 3"] * 4 + ["status: 4"] * 2)
        reasons = glob.glob(self.path("mlruns/*/*/tags/divvy.why"))
        self.assertEqual(len(reasons), 2)
        with open(reasons[0]) as reason:
            self.assertIn("broken ended with exit status 3", reason.read())
        rows = self.rows("runs.csv")
        self.assertEqual([row["state"] for row in rows], ["done", "done", "done", "done", "failed", "failed"])
        self.assertEqual(rows[1]["latency_ms"], "7.5")
        self.assertEqual(rows[3]["latency_ms"], "7.5")
        logs = glob.glob(self.path("runs.logs/b.1.broken.log"))
        with open(logs[0]) as log:
            self.assertEqual(log.read(), "oops\n")
        # It is not tried again unless asked; then it is.
        self.assertNotIn("[1/", self.run_to_end(jobs, "--runs", runs, status=1)[1])
        self.assertIn("[1/1] b", self.run_to_end(jobs, "--runs", runs, "--retry", status=1)[1])

    def test_runs_of_a_jobs_file_that_was_changed_do_not_go_on(self):
        text = """
gpu: {kind: H200-141GB}
jobs:
  - {name: a, command: [echo, one]}
  - {name: b, command: [echo, two]}
run: {warmup: 0s, limit: 50s}
"""
        jobs = self.write("jobs.yaml", text)
        table = "workload,mode,job\na alone,alone,a\nb alone,alone,b\n"
        self.run_to_end(jobs, "--runs", self.write("runs.csv", table), "--gpu", "0")
        before = self.rows("runs.csv")
        for old, new, words in [("echo, one", "echo, other", "jobs.yaml:4 has another command for its job 'a' now"),
                                ("limit: 50s", "limit: 40s", "another limit (50s, now 40s) for its job"),
                                ("echo, two]", "echo, two], progress: 's ([0-9])'", "jobs.yaml:5 has another progress")]:
            self.write("jobs.yaml", text.replace(old, new))
            err = self.run_to_end(jobs, "--runs", self.path("runs.csv"), status=2)[1]
            self.assertIn(words, err)
            self.assertIn("--restart", err)
            self.assertEqual(self.rows("runs.csv"), before)
        # A job that has not been run yet may change, and so may what says nothing of the run.
        self.write("jobs.yaml", "# Mine.\n" + text + "\n")
        self.assertNotIn("[1/", self.run_to_end(jobs, "--runs", self.path("runs.csv"))[1])
        self.write("jobs.yaml", text.replace("echo, one", "echo, other"))
        _, err = self.run_to_end(jobs, "--runs", self.path("runs.csv"), "--restart")
        self.assertIn("[1/2] a alone", err)
        with open(self.path("runs.logs/a_alone.1.a.log")) as log:
            self.assertEqual(log.read(), "other\n")
        # Tables from before nobody wrote that down.
        old = "workload,mode,job,state,seconds\na alone,alone,a,done,1\nb alone,alone,b,,\n"
        self.assertIn("[1/1] b alone", self.run_to_end(jobs, "--runs", self.write("old.csv", old))[1])

    def test_what_is_in_the_way_is_found_before_the_first_job(self):
        jobs = self.write("jobs.yaml", """
gpu: {kind: H200-141GB}
jobs: [{name: a, command: "true"}]
""")
        self.write("file", "")
        for option in ("--html", "--prometheus", "--mlflow", "--history", "--logs", "--runs"):
            _, err = self.run_to_end(jobs, option, self.path("file/below"), status=2)
            self.assertIn(f"{option} {self.path('file')}", err)
        self.assertIn("is a folder", self.run_to_end(jobs, "--html", self.path("boards"), status=2)[1])
        self.write("jobs.yaml", """
gpu: {kind: H200-141GB}
jobs:
  - {name: a, command: "true"}
  - {name: b, command: "true", directory: /no/where}
""")
        _, err = self.run_to_end(jobs, status=2)
        self.assertIn(f"{jobs}:5: job b: directory: '/no/where' is no folder", err)
        self.assertFalse(os.path.exists(self.path("jobs.runs.csv")))

    def test_behind_the_gate_a_job_begins_when_its_program_does(self):
        # A line tells, which is not the job's: it is neither waited for in vain nor left in the log.
        jobs = self.write("jobs.yaml", """
gpu: {kind: H200-141GB}
jobs: [{name: a, command: [echo, "step 1"]}]
run: {warmup: 0s, limit: 50s}
""")
        runs = self.write("runs.csv", "workload,mode,job\ng,gate,a\n")
        self.run_to_end(jobs, "--runs", runs)
        row = self.rows("runs.csv")[0]
        self.assertEqual(row["state"], "done", row["why"])
        with open(self.path("runs.logs/g.1.a.log")) as log:
            self.assertEqual(log.read().splitlines()[-1], "step 1")
            log.seek(0)
            self.assertNotIn("divvy-start", log.read())

    def test_sigterm_keeps_what_was_found(self):
        jobs = self.write("jobs.yaml", JOBS.replace("--steps, '40'", "--secs, '40'"))
        process = self.begin(jobs, "--modes", "mps")
        next(line for line in process.stderr if line.startswith("[1/"))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("stopped by a signal", err)
        self.assertEqual({row["state"] for row in self.rows()}, {""})
        self.assertEqual(self.left_behind(), [])

    def test_jobs_that_end_by_their_limit(self):
        jobs = self.write("jobs.yaml", """
gpu: {kind: H200-141GB}
jobs:
  - {name: chatty, command: ['yes', step 1], progress: 'step ([0-9]+)'}
  - {name: mute, command: [sleep, '60'], progress: 'step ([0-9]+)'}
  - {name: slow, command: [sleep, '60']}
run: {warmup: 0s, limit: 200ms}
""")
        runs = self.write("runs.csv", "workload,mode,job\nc,alone,chatty\nm,alone,mute\ns,alone,slow\n")
        self.run_to_end(jobs, "--runs", runs, status=1)
        chatty, mute, slow = (row["why"] for row in self.rows("runs.csv"))
        self.assertIn("too seldom", chatty)  # It never gets to step 2.
        self.assertIn("said nothing that its 'progress' matches", mute)
        self.assertIn("has not ended within 0.2 s", slow)

    def run_parent(self, child):
        """A job whose child outlives it: the job waits until the child has said so."""
        program = self.write("parent.py", f"""
import os, time
mine, its = os.pipe()
if os.fork() == 0:
    {child}
    os.write(its, b"x")
    while True:
        time.sleep(1)
os.read(mine, 1)
""")
        self.run_to_end(self.write("jobs.yaml", f"""
gpu: {{kind: H200-141GB}}
jobs:
  - {{name: parent, command: [python3, {program}]}}
run: {{warmup: 0s, limit: 50s}}
"""))

    def test_nothing_a_job_left_behind_runs_on(self):
        self.run_parent("while time.process_time() < 0.3: pass")
        self.assertEqual(self.left_behind(), [])
        self.assertGreater(float(self.rows()[0]["cpu_s"]), 0.3)  # Its time counts.

    def test_what_left_its_jobs_session_is_ended_too(self):
        self.run_parent("os.setsid()")
        self.assertEqual(self.left_behind(), [])

    def test_what_was_learned_can_be_read(self):
        # A tail that a crash cut short goes; a file of another form is left alone, and said.
        history = self.write("history.csv", "set,gpu,mode,job,speed\nw,H200-141GB,mps,a,0.9\nw,H200-141GB,mps,b,0.8\nw2,H2")
        jobs = self.write("jobs.yaml", JOBS)
        self.run_to_end(jobs, "--modes", "time-slicing", "--history", history)
        with open(history) as file:
            self.assertEqual([row["job"] for row in csv.DictReader(file)], ["a", "b", "trainer", "counter"])
        subprocess.run([DIVVY, "advise", jobs, "--history", history], check=True, stdout=subprocess.DEVNULL)
        os.unlink(self.path("jobs.runs.csv"))
        self.write("history.csv", "something,else\n")
        _, err = self.run_to_end(jobs, "--modes", "time-slicing", "--history", history)
        self.assertIn("not learned from: ", err)
        with open(history) as file:
            self.assertEqual(file.read(), "something,else\n")

    def test_guesses_are_not_learned_from(self):
        history = self.path("history.csv")
        self.make_node()  # A GPU of which nobody knows what it does.
        unknown = self.write("jobs.yaml", re.sub(r"\n    profile: .*", "", JOBS))
        _, err = self.run_to_end(unknown, "--modes", "time-slicing", "--history", history)
        self.assertIn("not learned from: of trainer neither utilisation nor, with the GPU's limit (`gpu: power`), power is known", err)
        os.unlink(self.path("jobs.runs.csv"))
        self.environment["DIVVY_NVML"] = "/nonexistent.so"
        _, err = self.run_to_end(self.write("jobs.yaml", JOBS), "--modes", "time-slicing", "--history", history)
        self.assertIn("not learned from: NVML says of no GPU", err)
        self.assertFalse(os.path.exists(history) and os.path.getsize(history))

    def test_a_simulated_gpu_is_learned_from_on_request_only(self):
        _, err = self.run_to_end(self.write("jobs.yaml", JOBS), "--modes", "time-slicing")
        self.assertIn("not learned from: the GPU is a simulated one", err)
        self.assertFalse(os.path.exists(self.path("state/divvy/collocations.csv")))

    def test_a_set_is_learned_from_once_its_jobs_have_run_alone(self):
        table = self.write("two.csv", "workload,mode,job\ntwo,mps,trainer\ntwo,mps,counter\n"
                                      "trainer alone,alone,trainer\ncounter alone,alone,counter\n")
        self.run_to_end(self.write("jobs.yaml", JOBS), "--runs", table, "--history", self.path("h.csv"))
        with open(self.path("h.csv")) as file:
            self.assertEqual([row["job"] for row in csv.DictReader(file)], ["trainer", "counter"])

    def test_a_set_is_learned_from_also_where_its_last_run_alone_comes_later(self):
        marker = self.path("may-run")
        jobs = self.write("jobs.yaml", JOBS.replace('command: "i=0', f'command: "[ -e {marker} ] || [ $COMPANY ] || exit 3; i=0'))
        table = self.write("two.csv", "workload,mode,job\ntrainer alone,alone,trainer\ncounter alone,alone,counter\n")
        self.run_to_end(jobs, "--runs", table, "--history", self.path("h.csv"), status=1)
        with open(table, "a") as file:
            empty = "," * (open(table).readline().count(",") - 2)
            file.write(f"two,mps,trainer{empty}\ntwo,mps,counter{empty}\n")
        self.environment["COMPANY"] = "1"
        self.run_to_end(jobs, "--runs", table, "--history", self.path("h.csv"), status=1)
        self.assertFalse(os.path.exists(self.path("h.csv")))
        self.write("may-run", "")
        for _ in range(2):  # The second time nothing is new.
            self.run_to_end(jobs, "--runs", table, "--history", self.path("h.csv"), "--retry")
            with open(self.path("h.csv")) as file:
                self.assertEqual([row["job"] for row in csv.DictReader(file)], ["trainer", "counter"])

    def test_who_is_measured_by_latency_adds_no_speed(self):
        # The service's requests take 2 ms alone and 4 beside the other: no work is lost by that, and no speed is learned.
        service = ("n=$(cat ran 2>/dev/null | wc -l); echo x >> ran; [ $n = 0 ] && l=2 || l=4; "
                   "i=0; while [ $i -lt 5 ]; do i=$((i+1)); echo latency $l; sleep 0.02; done")
        jobs = self.write("jobs.yaml", f"""
gpu: {{kind: H200-141GB, power: 700}}
jobs:
  - name: service
    command: "cd {self.path('')}; {service}"
    latency: latency ([0-9]+)
    profile: {{utilisation: 0.2}}
  - name: counter
    command: "{COUNTING}"
    progress: step ([0-9]+)
    profile: {{utilisation: 0}}
run: {{warmup: 0s, limit: 50s}}
""")
        out, err = self.run_to_end(jobs, "--modes", "time-slicing", "--history", self.path("h.csv"), "-o", "json")
        one, = json.loads(out)["together"]
        self.assertEqual([job["by_latency"] for job in one["jobs"]], [True, False])
        self.assertEqual(one["jobs"][0]["speed"], 0.5)
        self.assertIsNone(one["foretold"])
        self.assertAlmostEqual(one["work"], 1 + one["jobs"][1]["speed"], places=2)
        self.assertIn("not learned from: service is measured by its latency", err)
        shown, _ = self.run_to_end(jobs, "--history", "none")
        self.assertRegex(shown, r"time-slicing +4 ms +x 2 ")
        self.assertIn("service answers in 2 times its latency alone", shown)

    def test_a_jobs_file_of_another_gpu_is_refused(self):
        for jobs, options, words in ((JOBS.replace("H200-141GB", "A100-40GB"), [], "the GPU here is H200-141GB, not A100-40GB"),
                                     (JOBS, ["--gpu", "7"], "7")):
            _, err = self.run_to_end(self.write("jobs.yaml", jobs), *options, status=2)
            self.assertIn(words, err)
            self.assertFalse(os.path.exists(self.path("jobs.runs.csv")))
        # To be looked at, a table may come from anywhere.
        jobs = self.write("jobs.yaml", JOBS)
        table = self.write("one.csv", "workload,mode,job\ncounter alone,alone,counter\n")
        self.run_to_end(jobs, "--runs", table)
        subprocess.run([os.environ["NVML_SIM_TOOL"], "init", self.path("node"), "--gpus", "A100-40GB", "--force"], check=True, stdout=subprocess.DEVNULL)
        self.assertIn("counter", self.run_to_end(jobs, "--runs", table)[0])

    def test_a_program_that_is_not_there_is_named_behind_the_gate_too(self):
        jobs = self.write("jobs.yaml", "gpu: {kind: H200-141GB}\njobs: [{name: a, command: [/nonexistent/program]}]\n"
                                       "run: {warmup: 0s, limit: 50s}\n")
        table = self.write("one.csv", "workload,mode,job\none,gate,a\n")
        self.run_to_end(jobs, "--runs", table, status=1)
        self.assertIn("/nonexistent/program", self.rows("one.csv")[0]["why"])

    def test_each_set_has_its_advice(self):
        self.write("sets.csv", "workload,mode,job\ntrainer alone,alone,trainer\ncounter alone,alone,counter\n"
                               "two,time-slicing,trainer\ntwo,time-slicing,trainer\nmixed,mps,trainer\nmixed,mps,counter\n")
        jobs = self.write("jobs.yaml", JOBS)
        out, _ = self.run_to_end(jobs, "--runs", self.path("sets.csv"), "--gpu", "0", "-o", "json")
        found = {" + ".join(one["jobs"]): one for one in json.loads(out)["advice"]}
        self.assertEqual(set(found), {"trainer + trainer", "trainer + counter"})
        # Two that keep the GPU busy by themselves get less done together than one of them with one that does nothing.
        self.assertLess(found["trainer + trainer"]["work"]["mps"], found["trainer + counter"]["work"]["mps"])
        foretold = {one["workload"]: one["foretold"] for one in json.loads(out)["together"]}
        self.assertEqual(foretold["mixed"], found["trainer + counter"]["work"]["mps"])
        self.assertEqual(json.loads(out)["on"], [self.rows("sets.csv")[0]["on"]])
        shown, _ = self.run_to_end(jobs, "--runs", self.path("sets.csv"))
        self.assertEqual(shown.count("Advice from the runs alone"), 2, shown)
        self.assertIn("FORETOLD", shown)

    def test_a_gpu_that_is_cut_is_known_too(self):
        for words in (["init", self.path("cut"), "--gpus", "H200-141GB+mig"], *(["create", self.path("cut"), "--profile", "3g.71gb"],) * 2):
            subprocess.run([os.environ["NVML_SIM_TOOL"], *words], check=True, stdout=subprocess.DEVNULL)
        self.environment["DIVVY_NVML_SIM_STATE"] = self.path("cut")
        jobs = self.write("jobs.yaml", JOBS)
        for options in ((), ("--gpu", "0")):
            table = self.write("two.csv", "workload,mode,job\ntwo,mig,counter\ntwo,mig,counter\n")
            self.run_to_end(jobs, "--runs", table, *options)
            self.assertEqual([row["state"] for row in self.rows("two.csv")], ["done"] * 2)
        self.assertRegex(self.rows("two.csv")[0]["on"], r"^H200-141GB GPU-\S+, driver \S+$")

    def test_what_the_history_would_not_keep_is_not_learned_from(self):
        self.make_node()
        for known in ("family: resnet", "power: 300"):
            jobs = self.write("jobs.yaml", f"""
gpu: {{kind: H200-141GB}}
jobs:
  - {{name: a, command: [/bin/true], profile: {{{known}}}}}
  - {{name: b, command: [/bin/true], profile: {{{known}}}}}
run: {{warmup: 0s, limit: 50s}}
""")
            _, err = self.run_to_end(jobs, "--modes", "time-slicing", "--gpu", "0", "--history", self.path("h.csv"), "--restart")
            self.assertRegex(err, "not learned from: of [ab] neither utilisation nor, with the GPU's limit")
            self.assertFalse(os.path.exists(self.path("h.csv")))
            os.remove(self.path("jobs.runs.csv"))

    def test_runs_of_another_gpu_are_not_gone_on_with(self):
        jobs = self.write("jobs.yaml", JOBS)
        table = self.write("two.csv", "workload,mode,job\ncounter alone,alone,counter\n")
        self.run_to_end(jobs, "--runs", table, "--gpu", "0")
        self.assertRegex(self.rows("two.csv")[0]["on"], r"^H200-141GB GPU-d1777051-\S+, driver \S+$")
        with open(table) as file:
            text = file.read()
        self.write("two.csv", text.replace("H200-141GB GPU-d1", "H200-141GB GPU-d2"))
        # To be looked at it may come from anywhere.
        self.run_to_end(jobs, "--runs", table, "--gpu", "0")
        with open(table, "a") as file:
            file.write("trainer alone,alone,trainer" + "," * (text.splitlines()[0].count(",") - 2) + "\n")
        _, err = self.run_to_end(jobs, "--runs", table, "--gpu", "0", status=2)
        self.assertRegex(err, "workload 'counter alone' was run on H200-141GB GPU-d2.*, and this is H200-141GB GPU-d1")
        self.assertEqual(self.rows("two.csv")[1]["state"], "")
        self.run_to_end(jobs, "--runs", table, "--gpu", "0", "--restart")
        self.assertEqual({row["on"][:17] for row in self.rows("two.csv")}, {"H200-141GB GPU-d1"})

    def test_advice_where_nothing_fits(self):
        jobs = self.write("jobs.yaml", JOBS.replace("{utilisation: 0.9}", "{utilisation: 0.9, memory: 150}"))
        advice = subprocess.run([DIVVY, "advise", jobs, "--history", "none"], check=True, capture_output=True, text=True).stdout
        self.assertIn("Advice: not on this GPU: trainer alone needs 150.5 GiB", advice)

    def test_modes_of_a_table_that_is_there(self):
        jobs = self.write("jobs.yaml", JOBS)
        self.run_to_end(jobs, "--modes", "time-slicing", "--history", "none")
        self.run_to_end(jobs, "--modes", "time-slicing", "--history", "none")
        _, err = self.run_to_end(jobs, "--modes", "time-slicing,mps", "--history", "none", status=2)
        self.assertIn("says already what is to be run, and has time-slicing", err)

    def test_what_is_wrong_is_said(self):
        for text, words in [
                ("jobs: [{name: a}]", "no 'command'"),
                ("jobs: [{name: a, command: x, progress: 'step'}]", "has no group for the number"),
                ("jobs: [{name: a, command: x, waits: true}]", "needs 'ready'"),
                ("jobs: [{name: a, command: x, progres: y}]", "did you mean 'progress'?")]:
            jobs = self.write("jobs.yaml", "gpu: {kind: H200-141GB}\n" + text + "\n")
            self.assertIn(words, self.run_to_end(jobs, status=2)[1])
            for name in glob.glob(self.path("jobs.runs.csv")):
                os.unlink(name)
        jobs = self.write("jobs.yaml", "gpu: {kind: H200-141GB}\njobs: [{name: a, command: x}]\n")
        self.assertIn("did you mean 'gate'?", self.run_to_end(jobs, "--modes", "gat", status=2)[1])
        self.assertIn("mps stands there twice", self.run_to_end(jobs, "--modes", "mps,mps", status=2)[1])
        runs = self.write("runs.csv", "workload,mode,job\nw,alone,b\n")
        self.assertIn("'b' is no job of", self.run_to_end(jobs, "--runs", runs, status=2)[1])


if __name__ == "__main__":
    unittest.main()
