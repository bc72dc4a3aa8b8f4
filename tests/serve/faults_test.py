"""`divvy serve` while things go wrong: workers killed and stopped, reloads, the end; load goes on all the while."""

import collections
import http.client
import json
import os
import random
import signal
import socket
import threading
import unittest

from server import Server, profile

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

    def test_killed_workers(self):
        server = self.begin()
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
        self.assertEqual(figures['nv_inference_request_success{model="m",version="1"}'], load.statuses[200])

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

    def test_workers_end_with_the_server(self):
        server = self.begin()
        workers = server.workers()
        self.assertTrue(workers)
        server.signal(signal.SIGKILL)
        server.process.wait(timeout=60)
        for pid in workers:
            while os.path.exists(f"/proc/{pid}"):
                with open(f"/proc/{pid}/stat") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        break

    def test_overload_keeps_its_goodput(self):
        # Two lanes of 10 ms take 1600 items a second in batches of 8; one request at a time 200.
        server = self.begin(ms=10.0, processes=1, rate=50)
        load = Load(server, clients=48)
        load.more(500)
        load.end()
        self.assertEqual(load.wrong, [])
        figures = server.figures()
        self.assertEqual(figures.get('divvy_slo_late_total{model="m",version="1"}'), 0)


if __name__ == "__main__":
    unittest.main()
