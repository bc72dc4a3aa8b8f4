"""bench/gpu/pairs.py, which measures the gate on a GPU, rehearsed on the simulated driver: GPU time is too dear to find
its faults there."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# As much of PyTorch as JOB uses, in kernels of the simulated driver.
TORCH = r"""
import ctypes
class Driver:  # The device's context and a kernel; made when first asked for, which is after the fork.
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        context, module, self.kernel = (ctypes.c_void_p() for _ in range(3))
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), b"kernel work param_us=1\n")
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"work")
    def call(self, name, *words):
        error = getattr(self.library, name)(*words)
        if error: raise RuntimeError(f"{name}: {error}")
    def make(self, name, flags):
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), flags)
        return handle
driver = None
class Stream:
    def __init__(self):
        global driver
        driver = Driver()
        self.handle = driver.make("cuStreamCreate", 1)
    def synchronize(self): driver.call("cuStreamSynchronize", self.handle)
    def launch(self, us, blocks):
        us = ctypes.c_float(us)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(us))
        driver.call("cuLaunchKernel", driver.kernel, blocks, 1, 1, 1024, 1, 1, 0, self.handle, parameters, None)
class Event:
    def __init__(self, enable_timing=False): self.handle = driver.make("cuEventCreate", 0)
    def record(self, stream): driver.call("cuEventRecord", self.handle, stream.handle)
    def synchronize(self): driver.call("cuEventSynchronize", self.handle)
    def elapsed_time(self, end):
        milliseconds = ctypes.c_float()
        driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), self.handle, end.handle)
        return milliseconds.value
class Graph:
    def __init__(self, stream, work):
        graph, self.handle, self.stream = ctypes.c_void_p(), ctypes.c_void_p(), stream
        driver.call("cuStreamBeginCapture_v2", stream.handle, 1)
        work()
        driver.call("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(self.handle), graph, ctypes.c_ulonglong(0))
    def replay(self): driver.call("cuGraphLaunch", self.handle, self.stream.handle)
class cuda:
    Stream, Event = Stream, Event
"""

# A job of the two kinds, with the lines in it that pairs.py looks for.
JOB = r"""
import argparse, json, os, random, time
import torch
parser = argparse.ArgumentParser()
parser.add_argument("kind")
for name in ("model", "batch"): parser.add_argument("--" + name)
for name, value in (("rate", 0.), ("secs", 0.), ("start", 0.), ("graph", 1.)): parser.add_argument("--" + name, type=float, default=value)
a = parser.parse_args()
s, out = torch.cuda.Stream(), {"kind": a.kind, "cores": sorted(os.sched_getaffinity(0))}
def wait():
    while time.time()<a.start: time.sleep(0.001)
if a.kind == "infer":
    def work():
        for _ in range(20): s.launch(50., 16)
    g = torch.Graph(s, work)
    def eager(): work(); s.synchronize()
    def replay():
        g.replay(); s.synchronize()
    step = replay if a.graph else eager
    for _ in range(40): step()
    wait(); t0 = due = time.time(); lat = []; arrivals = random.Random(1)
    while True:
        due += arrivals.expovariate(a.rate)
        if due - t0 > a.secs: break
        time.sleep(max(0, due - time.time()))
        step(); lat.append((time.time() - due) * 1e3)
    lat.sort(); n = len(lat)
    out.update(n=n,p50=lat[n//2],p95=lat[int(n*.95)],p99=lat[int(n*.99)])
else:
    if a.model == "resnet50": raise SystemExit("out of memory")
    s.synchronize(); wait(); t0=time.time(); n=0; ev=None
    while time.time()-t0<a.secs:
        for _ in range(10): s.launch(500., 32)
        n+=1
        if ev is not None: ev.synchronize()
        ev=torch.cuda.Event(); ev.record(s)
    s.synchronize(); dt=time.time()-t0
    out.update(n=n,ms=dt/n*1e3,rate=n/dt)
print('RESULT '+json.dumps(out),flush=True)
"""


class Pairs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="divvy-pairs-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, text in (("torch.py", TORCH), ("torchvision.py", ""), ("job.py", JOB)):
            with open(self.path(name), "w") as file:
                file.write(text)
        os.mkdir(self.path("boards"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def left_behind(self):
        """Processes with our folder in their environment."""
        found = []
        for file in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(file, "rb") as environment:
                    if self.folder.encode() in environment.read():
                        found.append(file)
            except OSError:
                pass
        return found

    def measure(self, *options, **variables):
        """The results of pairs.py, and its table of them. What is said at jobs' ends is kept in `reports`."""
        environment = {
            **os.environ, "DIVVY_CUDA_SIM": self.path("gpu"), "DIVVY_CUDA_SIM_SPEC": "gpus=1 sms=16 memory=8GiB mode=mps",
            "DIVVY_BOARD_DIR": self.path("boards"), "LD_LIBRARY_PATH": os.environ["CUDA_SIM"], "PYTHONPATH": self.folder,
            "XDG_RUNTIME_DIR": self.folder, "FAKE_MPS_LOG": self.path("mps.log"), "DIVVY_NVML": os.environ["NVML_SIM"],
            "DIVVY_NVML_SIM_STATE": self.path("node"), "PATH": os.environ["FAKE_MPS"] + ":/usr/bin:/bin", **variables}
        subprocess.run([os.environ["NVML_SIM_TOOL"], "init", self.path("node"), "--gpus", "H200-141GB", "--cuda", "--force"],
                       check=True, stdout=subprocess.DEVNULL)
        pairs = [sys.executable, os.path.join(ROOT, "bench/gpu/pairs.py")]
        ran = subprocess.run([*pairs, "run", "--job", self.path("job.py"), "--divvy", os.environ["DIVVY"], "--out",
                              self.path("results"), "--scratch", self.folder, *options],
                             env=environment, capture_output=True, text=True, timeout=100)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        # The keepers of MPS daemons end when nobody uses these any more.
        deadline = time.monotonic() + 30
        while self.left_behind() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.left_behind(), [])
        self.assertEqual(glob.glob(self.path("divvy-bench-mps-*")), [])
        table = subprocess.run([*pairs, "table", self.path("results")], check=True, capture_output=True, text=True).stdout
        with open(self.path("results")) as file:
            found = [json.loads(line) for line in file]
        self.reports = {(*one["job"][:3], one["way"]): "\n".join(one["report"]) for one in found if "job" in one}
        return [one for one in found if "name" in one], [line.split(" | ") for line in table.splitlines()[2:]]

    def test_every_way_is_measured_and_held_against_its_bars(self):
        runs = ["graph:alone", "vgg16:alone", "vgg16:tight", "graph+vgg16:tight", "graph+vgg16:tight", "eager+vgg16:balanced",
                "graph+vgg16:priority", "graph+vgg16:slo=9ms"]
        results, table = self.measure("--keep", "--gpu-times", "--runs", *(run + ":0.6" for run in runs))
        self.assertEqual([f"{one['name']}:{one['way']}" for one in results], runs)
        for one in results:
            self.assertNotIn("error", one)
            self.assertEqual(one["awake"], "eager" in one["name"])
            self.assertEqual(bool(one["infer"]), "p99" in (one["infer"] or {}))
            if "vgg16" in one["name"]:
                self.assertGreater(one["train"]["ms"], 4)
                # The last step or two have the GPU for themselves.
                self.assertLess(one["train"]["ms"], 1.1 * one["train"]["ms_in_window"])
            if "graph" in one["name"]:
                self.assertGreater(one["infer"]["gpu_p50"], 0.9)
                # The GPU's millisecond is not in it.
                self.assertLess(one["infer"]["launching_p50"], one["infer"]["p50"] - 0.8)
            if one["infer"]:
                self.assertGreater(one["infer"]["launching_p50"], 0)
                self.assertGreater(one["infer"]["loop_p50"], 0)
        # One job each for what is the same in a row: two windows beside each other are in one report.
        for (kind, *_, way), report in self.reports.items():
            self.assertEqual(way not in ("alone", "priority"), "launched under the gate" in report, (kind, way))
        self.assertEqual(sorted(key for key in self.reports if key[0] == "infer"),
                         sorted(("infer", "--model", "transformer", way) for way in ("alone", "tight", "balanced", "priority", "slo=9ms")))
        verdicts = {(row[0][2:], row[1]): row[8] for row in table}
        self.assertRegex(verdicts["graph+vgg16", "tight"], "1.15, 1.25: (met|missed)")
        self.assertRegex(verdicts["eager+vgg16", "balanced"], "1.35, 1.20: (open|missed)", "eager was not measured alone")

    def test_a_run_that_fails_costs_no_other(self):
        for keep in ([], ["--keep"]):
            results, _ = self.measure(*keep, "--runs", "graph:alone:0.3", "graph+resnet50:tight:0.3", "graph+vgg16:tight:0.3")
            alone, failed, together = results[-3:]
            self.assertIn("p99", alone["infer"])
            self.assertEqual("tight" in "".join(way for *_, way in self.reports), bool(keep))
            self.assertIn("out of memory", json.dumps(failed))
            self.assertNotIn("p99", failed.get("infer") or {})
            self.assertIn("p99", together["infer"])
            self.assertIn("ms", together["train"])
        # Of these two the one that failed is left; the last line was not finished when the time was up.
        with open(self.path("results"), "a") as file:
            file.write('{"name": "graph", "way": "al')
        resumed, _ = self.measure("--resume", "--runs", "graph:alone:0.3", "graph+resnet50:tight:0.3")
        self.assertEqual([one["name"] for one in resumed[len(results):]], ["graph+resnet50"])

    def test_inference_has_its_cores_for_itself(self):
        first, *others = sorted(os.sched_getaffinity(0))
        if not others:
            self.skipTest("there is one core only")
        results, _ = self.measure("--inference-cores", str(first), "--runs", "eager:alone:0.3", "eager+vgg16:tight:0.3")
        self.assertEqual([one["infer"]["cores"] for one in results], [[first], [first]])
        self.assertEqual(results[1]["train"]["cores"], others)

    def test_a_machine_that_changes_is_told_from_the_gate(self):
        # Twice as slow by the end, alone and together alike.
        def result(name, p99, ms):
            way = "tight" if "+" in name else "alone"
            return {"name": name, "way": way, "secs": 10.0, "infer": p99 and {"p99": p99}, "train": ms and {"ms": ms}}

        runs = [result("vgg16", None, 50), result("graph", 10, None), result("graph+vgg16", 13.2, 66), result("vgg16", None, 70),
                result("graph", 14, None), result("graph+vgg16", 18.7, 93.5), result("graph", 20, None), result("vgg16", None, 100)]
        with open(self.path("results"), "w") as file:
            file.writelines(json.dumps(run) + "\n" for run in runs)
        tables = [subprocess.run([sys.executable, os.path.join(ROOT, "bench/gpu/pairs.py"), "table", *options, self.path("results")],
                                 check=True, capture_output=True, text=True).stdout for options in ([], ["--near"])]
        plain, near = (next(line.split(" | ") for line in table.splitlines() if "graph+vgg16" in line) for table in tables)
        self.assertEqual(near[5::2], ["1.100", "1.100"])
        self.assertEqual(plain[5::2], ["1.139", "1.139"])

    def test_training_that_goes_on_is_not_lost_or_left_running_by_a_way_that_cannot_be_started(self):
        results, _ = self.measure("--keep", "--runs", "graph+vgg16:slice:0.3", "graph+vgg16:percent:0.3", "graph:alone:0.3",
                                  FAKE_MPS_FAULT="refuse")
        by_way = {one["way"]: one for one in results}
        self.assertIn("ms", by_way["slice"]["train"])
        self.assertIn("nvidia-cuda-mps-control", by_way["percent"]["error"])
        self.assertIn("p99", by_way["alone"]["infer"])


if __name__ == "__main__":
    unittest.main()
