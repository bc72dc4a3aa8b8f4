"""`divvy profile` with servers that have bad moments, die, or print; as a user runs it."""

import csv
import io
import itertools
import json
import os
import subprocess
import tempfile
import unittest

DIVVY = os.environ["DIVVY"]

# A model of one input that answers at once. Kills itself at a batch of DIE_AT items, or at its start when it is to take more
# than START_MOST, and answers 503 to the first batch of BUSY_AT that comes to any of its processes.
SERVER = r"""
import http.server, json, os, signal, socketserver, sys

def number(name):
    return int(os.environ.get(name, "1000000"))

class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, status, words):
        body = json.dumps(words).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.endswith("/config"):
            return self.say(200, {"max_batch_size": int(os.environ["DIVVY_MAX_BATCH"])})
        tensor = {"datatype": "FP32", "shape": [-1, 4]}
        self.say(200, {"name": "m", "platform": "test", "versions": ["1"], "ready": True,
                       "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}]})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        head = body[:int(self.headers.get("inference-header-content-length", len(body)))]
        items = json.loads(head)["inputs"][0]["shape"][0]
        if items >= number("DIE_AT") or items == number("DIE_ON"):
            os.kill(os.getpid(), signal.SIGKILL)
        if items == number("BUSY_AT"):
            try:
                os.mkdir(os.environ["SEEN"])
                return self.say(503, {"error": "not now"})
            except FileExistsError:
                pass
        self.say(200, {"model_name": "m", "outputs": []})

    def address_string(self):
        return "unix"

    def log_message(self, *words):
        pass

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

with open(os.environ["STARTS"], "a") as file:
    print(os.environ["DIVVY_MAX_BATCH"], file=file)
if int(os.environ["DIVVY_MAX_BATCH"]) > number("START_MOST"):
    os.kill(os.getpid(), signal.SIGKILL)
Server(os.environ["DIVVY_LISTEN"].removeprefix("unix:"), Model).serve_forever()
"""


class Profile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="divvy-profile-")
        self.addCleanup(self.folder.cleanup)
        with open(self.path("server.py"), "w") as file:
            file.write(SERVER)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def profile(self, *options, status=0, **variables):
        done = subprocess.run([DIVVY, "profile", *options], env={**os.environ, **variables}, timeout=60,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def measure(self, status=0, **variables):
        """Batches that were measured, with which largest ones servers were started, and what was said."""
        starts = self.path("starts")
        open(starts, "w").close()
        done = self.profile("--command", "exec python3 -S " + self.path("server.py"), "--model", "m", "--on", "cpu",
                            "--partitions", "132sm", "--max-batch", "16", "--all-points", "--point-limit", "0.01",
                            "-o", "csv", status=status, STARTS=starts, SEEN=self.path("seen"), **variables)
        with open(starts) as file:
            # One that dies at once may be on its way again before that is seen.
            started = [most for most, _ in itertools.groupby(int(line) for line in file)]
        return [int(row["batch"]) for row in csv.DictReader(io.StringIO(done.stdout))], started, done.stderr

    def test_a_death_at_a_large_batch_leaves_it_and_larger_ones_out(self):
        batches, started, err = self.measure(DIE_AT="4")
        self.assertEqual(batches, [1, 2])
        # With what remains each time: whoever warms up with the largest batch would die at once again.
        self.assertEqual(started, [16, 8, 4, 2])
        self.assertRegex(err, r"batch 16: a worker ended: .*signal 9.*; starting it again and going on with smaller ones")

    def test_what_was_measured_of_larger_ones_is_left_out_too(self):
        # 16 is measured before 4. A profile of 1, 2 and 16 would answer 4 by a line.
        batches, _, _ = self.measure(DIE_ON="4")
        self.assertEqual(batches, [1, 2])

    def test_a_death_at_the_smallest_batch_is_an_error(self):
        batches, started, err = self.measure(status=1, DIE_AT="1")
        self.assertEqual((batches, started), ([], [16]))
        self.assertRegex(err, r"batch 1: a worker ended: .*signal 9")

    def test_a_death_at_the_start_by_the_largest_batch(self):
        batches, started, err = self.measure(START_MOST="4")
        self.assertEqual(batches, [1, 2, 4])
        self.assertEqual(started, [16, 1, 8, 1, 4])
        self.assertRegex(err, r"batches up to 16: a worker ended: .*; starting it again for those up to 8\n")
        # One that cannot be started at all is no matter of batches.
        _, started, err = self.measure(status=1, START_MOST="0")
        self.assertEqual(started, [16, 1])
        self.assertIn("a worker ended", err)

    def test_one_refusal_does_not_cut_a_curve(self):
        batches, started, err = self.measure(BUSY_AT="8")
        self.assertEqual((batches, started), ([1, 2, 4, 8, 16], [16]))
        self.assertIn("batch 8: HTTP 503: not now; trying it once more", err)

    def test_wrong_times_of_a_synthetic_model_are_told_at_once(self):
        run = subprocess.run([DIVVY, "profile", "--synthetic", "1:900,8:x", "--on", "cpu"], capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        self.assertEqual(run.stderr.count("is no time of a batch"), 1, run.stderr)
        self.assertIn("--synthetic: '8:x' is no time of a batch", run.stderr)
        self.assertNotIn("worker", run.stderr)

    def test_what_is_no_number_is_in_no_range(self):
        for words in (["profile", "--precision"], ["profile", "--point-limit"], ["profile", "ops", "--cost"],
                      ["advise", "jobs.yaml", "--keep"], ["bench", "http://h:1", "--rate"],
                      ["bench", "http://h:1", "--percentile"], ["bench", "http://h:1", "--resolution"],
                      ["simulate", "fleet.yaml", "--quantile"]):
            for value in ("nan", "inf", "1e9", "1x"):
                done = subprocess.run([DIVVY, *words, value], capture_output=True, text=True)
                self.assertEqual(done.returncode, 2, words)
                self.assertIn(f"{words[-1]}: '{value}' is not a number from ", done.stderr)

    def test_json_of_the_kernel_log_is_all_there_is_on_standard_output(self):
        words = ["--ops", "-o", "json"]
        done = self.profile(*words, "--", "echo", "my own words")
        self.assertIn("kernels", json.loads(done.stdout))
        self.assertIn("my own words", done.stderr)
        # With a file for the summary standard output is the program's.
        done = self.profile(*words, "--summary", self.path("s.json"), "--", "echo", "my own words")
        self.assertEqual(done.stdout, "my own words\n")


if __name__ == "__main__":
    unittest.main()
