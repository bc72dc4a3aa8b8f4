"""`divvy serve` while things go wrong: workers killed and stopped, reloads, the end; load goes on all the while."""

import collections
import fcntl
import gzip
import http.client
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import unittest
import zlib

from server import DIVVY, Server, parse, profile

KILLS = int(os.environ.get("DIVVY_KILLS", "50"))


def fleet(rate=400, names=("m",)):
    models = "".join(f"""
  - name: {name}
    profile: p.csv
    slo: 2s
    load: {{rate: {rate}}}""" for name in names)
    return f"gpus: {{kind: A100-80GB, count: 1}}\nmodels:{models}\n"


class Load:
    """Clients that ask again and again on connections they keep, and note every answer."""

    def __init__(self, server, clients=6, model="m"):
        self.server, self.model = server, model
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.statuses = collections.Counter()
        self.wrong = []
        self.answered = threading.Condition(self.lock)
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, client):
        connection, number = None, 0
        while not self.stop.is_set():
            number += 1
            name = f"{client}-{number}"
            body = json.dumps({"id": name, "inputs": [{"name": "input", "shape": [1, 1], "datatype": "FP32", "data": [1]}]})
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self.server.http, timeout=30)
                connection.request("POST", f"/v2/models/{self.model}/infer", body)
                response = connection.getresponse()
                answer = json.loads(response.read())
                status, closes = response.status, response.getheader("Connection") == "close"
            except ConnectionRefusedError:
                self.note("refused")
                return
            except (OSError, http.client.HTTPException) as error:
                self.note("broken", f"{name}: {error!r}")
                return
            if status == 200 and answer.get("id") != name:
                self.note("mixed up", f"{name} got {answer}")
            given_up = status == 500 and "three workers failed" in answer.get("error", "")
            self.note("given up" if given_up else status)
            if closes:
                connection.close()
                connection = None

    def note(self, status, wrong=None):
        with self.lock:
            self.statuses[status] += 1
            if wrong:
                self.wrong.append(wrong)
            self.answered.notify_all()

    def more(self, count, status=200):
        """Waits for so many more answers."""
        with self.lock:
            goal = self.statuses[status] + count
            assert self.answered.wait_for(lambda: self.statuses[status] >= goal or self.wrong, 60), self.statuses

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


class Faults(unittest.TestCase):
    def begin(self, *options, ms=1.0, processes=2, **kind):
        server = Server(fleet(**kind), profile("m", ms, processes) + profile("n", ms, processes), *options)
        self.addCleanup(server.end)
        server.await_event("ready")
        return server

    def slowest(self, server):
        """Of 200 requests, one after the other, the third slowest, in ms by the server's own clock: their p99."""
        connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=30)
        body = json.dumps({"inputs": [{"name": "input", "shape": [1, 1], "datatype": "FP32", "data": [1]}],
                           "parameters": {"divvy_timing": True}})
        times = []
        for _ in range(200):
            connection.request("POST", "/v2/models/m/infer", body)
            answer = json.loads(connection.getresponse().read())
            times.append((answer["parameters"]["divvy_queue_us"] + answer["parameters"]["divvy_compute_us"]) / 1000)
        connection.close()
        return sorted(times)[-3]

    def test_killed_workers(self):
        server = self.begin()
        usual = self.slowest(server)
        load = Load(server)
        chance = random.Random(5)
        for _ in range(KILLS):
            load.more(chance.randrange(20))
            workers = server.workers()
            if workers:
                os.kill(chance.choice(workers), signal.SIGKILL)
        load.more(200)
        load.end()
        self.assertEqual(load.wrong, [])
        # By chance a request is under way on three workers that are killed.
        self.assertLessEqual(set(load.statuses), {200, 429, 503, "given up"})
        self.assertLessEqual(load.statuses["given up"], KILLS // 10)
        restarts = sum(value for name, value in server.figures().items() if name.startswith("divvy_partition_restarts_total"))
        self.assertGreaterEqual(restarts, KILLS // 2)
        figures = server.figures()
        self.assertEqual(figures["divvy_pending_requests"], 0)
        # What the server counts is what clients saw.
        self.assertEqual(figures['nv_inference_request_success{model="m",version="1"}'], load.statuses[200] + 200)
        # Once all are up again it is as fast as before. A machine that tests share has hiccups; what this would find
        # are requests that wait for a worker which is not there, or until their deadline of 2 s.
        while not all(value for name, value in server.figures().items() if name.startswith("divvy_partition_up")):
            pass
        # A machine that stalls does so once; a server that has not recovered is slow each time.
        self.assertLess(min(self.slowest(server) for _ in range(3)), usual + 250)

    def test_a_worker_that_hangs(self):
        server = self.begin()
        load = Load(server)
        load.more(20)
        os.kill(server.workers()[0], signal.SIGSTOP)
        event = server.await_event("worker given up")
        self.assertIn("longer than expected", event["why"])
        load.more(200)
        load.end()
        self.assertEqual(load.wrong, [])
        self.assertLessEqual(set(load.statuses), {200, 429, 503})

    def test_reload(self):
        server = self.begin()
        load = Load(server)
        for turn in range(3):
            load.more(50)
            names = ("m", "n") if turn % 2 == 0 else ("m",)
            server.write(fleet(names=names), profile("m", 1.0, 2) + profile("n", 1.0, 2))
            server.signal(signal.SIGHUP)
            server.await_event("the new plan has taken over", turn + 1)
            self.assertEqual(server.ask("GET", "/v2/models/n/ready")[0], 200 if turn % 2 == 0 else 404)
        server.write("gpus: {kind: A100-80GB}\n", "")
        server.signal(signal.SIGHUP)
        server.await_event("the new fleet is not served; the former one goes on")
        load.more(50)
        load.end()
        self.assertEqual((load.wrong, set(load.statuses)), ([], {200}))

    def test_reloads_in_a_row(self):
        # Also before the first workers are up: nothing may take over that is not warm.
        server = Server(fleet(), profile("m", 1.0, 2) + profile("n", 1.0, 2))
        self.addCleanup(server.end)
        for _ in range(3):
            server.signal(signal.SIGHUP)
        server.await_event("the new plan has taken over")
        load = Load(server)
        for _ in range(5):
            load.more(5)
            server.signal(signal.SIGHUP)
        load.more(100)
        load.end()
        self.assertEqual((load.wrong, set(load.statuses)), ([], {200}))

    def test_the_end_with_an_open_stream(self):
        # A gRPC connection that has opened a stream and says no more, as clients of streams do.
        server = self.begin()
        frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        with socket.create_connection(("127.0.0.1", server.grpc), timeout=30) as connection:
            connection.sendall(frames)
            connection.recv(1)
            self.assertEqual(server.end(), 0)

    def test_the_end_under_load(self):
        server = self.begin(ms=20.0)
        load = Load(server, clients=12)
        load.more(50)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(timeout=60), 0)
        load.end()
        self.assertEqual(load.wrong, [])
        self.assertLessEqual(set(load.statuses), {200, "refused"})
        self.assertEqual(server.workers(), [])

    def test_pipelined_requests_whose_client_goes(self):
        # Answers of one batch come together; the first ones find out that nobody is there.
        server = self.begin(ms=20.0)
        body = json.dumps({"inputs": [{"name": "input", "shape": [1, 1], "datatype": "FP32", "data": [1]}]})
        request = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", server.http), timeout=30) as connection:
                connection.sendall(8 * request)
        while server.figures()["divvy_pending_requests"]:
            pass
        self.assertEqual(server.ask("GET", "/v2/health/live")[0], 200)
        self.assertEqual(server.end(), 0)

    def test_workers_end_with_the_server(self):
        runtime = self.enterContext(tempfile.TemporaryDirectory(prefix="divvy-runtime-"))
        server = Server(fleet(), profile("m", 1.0, 2), runtime=runtime)
        self.addCleanup(server.end)
        server.await_event("ready")
        stale = os.listdir(runtime)
        self.assertEqual(len(stale), 1)
        workers = server.workers()
        self.assertTrue(workers)
        server.signal(signal.SIGKILL)
        server.process.wait(timeout=60)
        for pid in workers:
            while os.path.exists(f"/proc/{pid}"):
                with open(f"/proc/{pid}/stat") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        break
        # What it could not clear away the next server does, and leaves alone what is in use or not a server's.
        others = ["divvy-serve-locked", "divvy-serve-makes1", "divvy-serve-notes", "notes"]
        for name in others:
            os.mkdir(os.path.join(runtime, name))
        with open(os.path.join(runtime, "divvy-serve-locked", "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            open(os.path.join(runtime, "divvy-serve-notes", "lock"), "w").close()
            self.assertEqual(os.listdir(runtime).count(stale[0]), 1)
            after = Server(fleet(), profile("m", 1.0, 2), runtime=runtime)
            left = set(os.listdir(runtime))
            self.assertEqual(after.end(), 0)
        self.assertNotIn(stale[0], left)
        self.assertLessEqual(set(others), left)
        self.assertEqual(set(os.listdir(runtime)), set(others))



class Mps(unittest.TestCase):
    """Shares of an MPS daemon, which a stand-in for NVIDIA's program plays."""

    def keepers(self, server):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if any(word.startswith(server.folder.name.encode() + b"/divvy/mps-") for word in words):
                found.append(int(pid))
        return found

    def end(self, server):
        server.signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(timeout=60), 0)
        while self.keepers(server):  # It ends the daemon, and removes its folder.
            pass
        server.end()

    def test_a_daemon_that_dies_is_started_before_its_workers(self):
        with tempfile.TemporaryDirectory(prefix="divvy-mps-") as folder:
            log = os.path.join(folder, "mps.log")
            server = Server(fleet(), profile("m", 1.0, 2), "--on", "mps", environment={
                "PATH": os.environ["DIVVY_FAKE_MPS"] + ":/usr/bin:/bin", "FAKE_MPS_LOG": log, "DIVVY_MPS_PACE": "0.05",
                "DIVVY_NVML": "/nonexistent/libnvidia-ml.so.1"})
            self.addCleanup(self.end, server)
            server.await_event("ready")
            count = len(server.workers())
            for turn, victim in enumerate(("keeper", "daemon")):
                before = server.workers()
                if victim == "keeper":
                    os.kill(*self.keepers(server), signal.SIGKILL)
                else:
                    with open(log) as file:
                        os.kill(int(file.read().split()[-2]), signal.SIGKILL)
                # As its clients do.
                os.kill(before[0], signal.SIGKILL)
                server.await_event("the MPS daemon had died or hung and was started anew", turn + 1)
                while len(set(server.workers()) - set(before)) < count or not all(
                        value for name, value in server.figures().items() if name.startswith("divvy_partition_up")):
                    pass
                with open(log) as file:
                    self.assertEqual(len(file.readlines()), turn + 2)
                self.assertEqual(server.infer("m", Odd.REQUEST)[0], 200)


class Odd(unittest.TestCase):
    """One server, of a model with an unlucky name that takes a second, with little room."""

    @classmethod
    def setUpClass(cls):
        slow = fleet(rate=0.1, names=("stats",)).replace("slo: 2s", "slo: 30s")
        cls.server = Server(slow, profile("stats", 1000.0), "--max-pending", "1")
        cls.server.await_event("ready")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.end() == 0

    REQUEST = {"inputs": [{"name": "input", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}

    def begin(self, data):
        connection = socket.create_connection(("127.0.0.1", self.server.http), timeout=60)
        self.addCleanup(connection.close)
        connection.sendall(data)
        return connection

    def question(self):
        body = json.dumps(self.REQUEST).encode()
        return f"POST /v2/models/stats/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def signal_workers(self, number):
        for worker in self.server.workers():
            os.kill(worker, number)

    def await_figure(self, name, value):
        # Each look is a request: no sleep is needed for others to get their turn.
        for _ in range(20000):
            if self.server.figures().get(name, 0) == value:
                return
        self.fail(f"{name} does not become {value}: {self.server.figures()}")

    def test_a_model_called_stats(self):
        self.assertEqual(json.loads(self.server.ask("GET", "/v2/models/stats")[2])["name"], "stats")
        stats = json.loads(self.server.ask("GET", "/v2/models/stats/stats")[2])
        self.assertEqual(stats["model_stats"][0]["name"], "stats")
        self.assertEqual(self.server.ask("GET", "/v2/models/stats/ready")[0], 200)

    def test_notes_are_objects_too(self):
        with self.server.changed:
            self.assertEqual([event for event in self.server.events if event["event"] == "said"], [])
            notes = [event["text"] for event in self.server.events if event["event"] == "note"]
        self.assertIn("stats is synthetic", " ".join(notes))

    def test_half_received_bodies_take_no_more_than_their_room(self):
        half = b"POST /v2/models/stats/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 700000\r\n\r\n" + bytes(600000)
        first = self.begin(half)
        self.await_figure("divvy_held_bytes", len(half))
        answer = b""
        second = self.begin(half)
        while chunk := second.recv(65536):
            answer += chunk
        self.assertEqual(parse(answer)[0], 429)
        self.assertEqual(self.server.figures()["divvy_held_bytes"], len(half))
        first.close()
        self.await_figure("divvy_held_bytes", 0)

    def test_clients_that_go_are_counted(self):
        before = self.server.figures()
        self.signal_workers(signal.SIGSTOP)
        connection = self.begin(self.question())
        self.await_figure("divvy_pending_requests", 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()  # With a reset.
        self.await_figure("divvy_http_connections", 0)
        self.signal_workers(signal.SIGCONT)
        self.await_figure('nv_inference_request_failure{model="stats",version="1",reason="CANCELED"}', 1)
        # And not as answered, too.
        for name, value in before.items():
            if name.startswith(("nv_inference_request_success", "divvy_slo_in_time_total", "divvy_slo_late_total")):
                self.assertEqual(self.server.figures()[name], value, name)

    def test_a_body_that_becomes_too_large(self):
        for name, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            status, _, body = self.server.ask("POST", "/v2/models/stats/infer", pack(bytes(2 << 20)), {"Content-Encoding": name})
            self.assertEqual(status, 413)
            self.assertIn(f"larger than {1 << 20} bytes", json.loads(body)["error"])

    def test_requests_of_the_plan_before_are_pending_too(self):
        self.signal_workers(signal.SIGSTOP)
        connection = self.begin(self.question())
        self.await_figure("divvy_pending_requests", 1)
        self.server.signal(signal.SIGHUP)
        self.server.await_event("the new plan has taken over")
        self.assertEqual(self.server.figures()["divvy_pending_requests"], 1)
        self.signal_workers(signal.SIGCONT)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        self.assertEqual(parse(answer)[0], 200)

    def test_without_descriptors_it_says_so(self):
        pid = self.server.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = os.listdir(f"/proc/{pid}/fd")
        free = next(number for number in range(len(used) + 1) if str(number) not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free + 1, before[1]))
        connections = [self.begin(b"") for _ in range(8)]
        event = self.server.await_event("no connection can be accepted")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        self.assertIn("open files", event["why"])
        for connection in connections:
            connection.close()
        self.assertEqual(self.server.ask("GET", "/v2/health/live")[0], 200)

    def test_options_that_make_no_sense(self):
        with tempfile.NamedTemporaryFile("w") as file:
            def refused(*options):
                run = subprocess.run([DIVVY, "serve", self.server.fleet, "--dry-run", *options], capture_output=True, text=True)
                self.assertNotEqual(run.returncode, 0)
                return run.stderr
            self.assertIn("openssl rand", refused("--token-file", file.name))
            file.write("two words\n")
            file.flush()
            self.assertIn("space", refused("--token-file", file.name))
            self.assertIn("whole number from 0", refused("--seed", "-1"))
            self.assertIn("--max-body 9 is larger than --max-pending 8", refused("--max-body", "9", "--max-pending", "8"))
            subprocess.run([DIVVY, "serve", self.server.fleet, "--dry-run", "--max-pending", "8", "--max-body", "8"],
                           capture_output=True, check=True)


if __name__ == "__main__":
    unittest.main()
