"""A `divvy serve` of a test's own: a fleet in a temporary folder, free ports, its log."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.request

DIVVY = os.environ["DIVVY"]
PROFILE_HEAD = "model,partition,processes,batch,latency_ms,p95_ms,memory_mib,gpu,source\n"


def profile(model, ms, processes=1, batches=(1, 2, 4, 8)):
    """A model that takes `ms` for any batch, on 1g instances."""
    return "".join(f"{model},1g,{processes},{batch},{ms},,1000,A100-80GB,for a test\n" for batch in batches)


class Server:
    def __init__(self, fleet, profiles, *options, runtime=None, environment=None):
        """`runtime`: where its sockets are; a folder of its own unless told. `environment`: besides ours."""
        self.folder = tempfile.TemporaryDirectory(prefix="divvy-serve-test-")
        self.fleet = os.path.join(self.folder.name, "fleet.yaml")
        self.write(fleet, profiles)
        self.process = subprocess.Popen(
            [DIVVY, "serve", self.fleet, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
             "--log", "json", *options],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_RUNTIME_DIR": runtime or self.folder.name, **(environment or {})})
        self.events = []
        self.changed = threading.Condition()
        threading.Thread(target=self.read_log, daemon=True).start()
        listening = self.await_event("listening")
        self.http = int(listening["http"].rsplit(":", 1)[1])
        self.grpc = int(listening["grpc"].rsplit(":", 1)[1])
        self.metrics = int(listening["metrics"].rsplit(":", 1)[1])

    def write(self, fleet, profiles):
        with open(self.fleet, "w") as file:
            file.write(fleet)
        with open(os.path.join(self.folder.name, "p.csv"), "w") as file:
            file.write(PROFILE_HEAD + profiles)

    def read_log(self):
        for line in self.process.stderr:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "said", "text": line.strip()}
            with self.changed:
                self.events.append(event)
                self.changed.notify_all()
        with self.changed:
            self.events.append({"event": "over"})
            self.changed.notify_all()

    def await_event(self, name, count=1):
        """Waits for the count-th event of that name."""
        with self.changed:
            def found():
                return [event for event in self.events if event["event"] == name]
            if not self.changed.wait_for(lambda: len(found()) >= count or self.events[-1:] == [{"event": "over"}], 60) \
                    or len(found()) < count:
                raise AssertionError(f"no event {name}: {self.events}")
            return found()[count - 1]

    def ask(self, method, path, body=b"", headers=None):
        """One request on a connection of its own: status, headers (lower case), body."""
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        for name, value in (headers or {}).items():
            head += f"{name}: {value}\r\n"
        if body or method == "POST":
            head += f"Content-Length: {len(body)}\r\n"
        return self.raw(head.encode() + b"\r\n" + body)

    def raw(self, data, half_closes=False):
        with socket.create_connection(("127.0.0.1", self.http), timeout=30) as connection:
            connection.sendall(data)
            if half_closes:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        return parse(answer)

    def infer(self, model, request, headers=None):
        return self.ask("POST", f"/v2/models/{model}/infer", json.dumps(request).encode(), headers)

    def figures(self):
        """Prometheus' lines, by name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {match[1]: float(match[2]) for match in re.finditer(r"^([^#\s]\S*(?:\{[^}]*\})?) (\S+)$", text, re.M)}

    def workers(self, model=None):
        """Process ids of its workers."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                with open(f"/proc/{pid}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            mine = parent == self.process.pid and b"--listen" in words
            if mine and (model is None or model.encode() in words):
                found.append(int(pid))
        return found

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.folder.cleanup()
        return status


def parse(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {line.split(":", 1)[0].lower(): line.split(":", 1)[1].strip() for line in lines[1:]}
    return int(lines[0].split()[1]), headers, body
