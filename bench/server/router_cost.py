#!/usr/bin/env python3
"""What the router costs: `divvy serve` over one synthetic worker that takes no time, against NGINX as a plain reverse proxy
to the same kind of worker, in one run. Called by `make bench`; needs nginx and h2load (nghttp2-client).

    bench/server/router_cost.py BUILD [--rounds 3] [--seconds 3]

HTTP is HTTP/1.1 with binary tensors on both. The worker speaks no gRPC and NGINX does not translate it, so gRPC is compared
with what is nearest: the same tensors over HTTP/2 to NGINX, which passes them on to the worker as HTTP/1.1.
Ratios are medians over rounds that take turns, so that a noisy machine is noisy to both. What is added at half load is
measured with `divvy bench`, since h2load sends in bursts when it is told a rate.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

NGINX = """
daemon off; {user} worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_max_body_size 100m; client_body_buffer_size 1m; proxy_buffers 16 64k; http2_body_preread_size 1m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; keepalive_requests 1000000000;
  upstream worker {{ server unix:{folder}/worker.sock; keepalive 64; }}
  server {{
    listen 127.0.0.1:{nginx}; listen 127.0.0.1:{nginx_h2} http2;
    location / {{ proxy_pass http://worker; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
FLEET = """
gpus: {kind: A100-80GB, count: 1}
models:
  - name: m
    profile: profiles.csv
    slo: 60s
    load: {rate: 1}
    serve: {inputs: [{name: x, dims: [-1]}], outputs: [{name: y, dims: [1]}]}
"""
PROFILE = "model,partition,processes,batch,latency_ms,p95_ms,memory_mib,gpu,source\n" + \
          "".join(f"m,7g,1,{batch},0.0001,,1000,A100-80GB,no time\n" for batch in (1, 2, 4, 8))
MESSAGES = {"1 KiB": 256, "600 KiB": 153600}  # Elements of FP32.
CLIENTS = (1, 8, 32)
FULL_LOAD_CLIENTS = 8
LEAST_RATE, MOST_TAIL, MOST_ADDED_US = 0.8, 1.25, 60  # The bars.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def field(number, payload):
    """A protobuf field of bytes."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def http_body(count):
    """Of a request with one tensor in binary, and the length of its JSON."""
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, count], "datatype": "FP32",
                                   "parameters": {"binary_data_size": 4 * count}}],
                       "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    return head + bytes(4 * count), len(head)


def grpc_body(count):
    """The same as ModelInferRequest, framed."""
    tensor = field(1, b"x") + field(2, b"FP32") + field(3, varint(1) + varint(count))
    message = field(1, b"m") + field(5, tensor) + field(7, bytes(4 * count))
    return b"\0" + len(message).to_bytes(4, "big") + message


class Stage:
    """The three programs, and the messages to send."""

    def __init__(self, build):
        self.folder = tempfile.mkdtemp(prefix="divvy-bench-")
        self.processes = []
        path = os.path.join(self.folder, "")
        with open(path + "fleet.yaml", "w") as file:
            file.write(FLEET)
        with open(path + "profiles.csv", "w") as file:
            file.write(PROFILE)
        self.ports = {name: free_port() for name in ("nginx", "nginx_h2", "divvy", "grpc", "metrics", "worker")}
        self.divvy = os.path.join(build, "apps/divvy/divvy")
        for address in (f"unix:{path}worker.sock", f"127.0.0.1:{self.ports['worker']}"):  # Behind NGINX, and asked itself.
            self.start([os.path.join(build, "apps/divvy-worker/divvy-worker"), "--listen", address, "--model", "m",
                        "--engine", "synthetic", "--max-batch", "8", "--input", "x:FP32:-1", "--output", "y:FP32:1",
                        "--latency-us", "0,0,0,0,0,0,0,0"])
        with open(path + "nginx.conf", "w") as file:
            file.write(NGINX.format(folder=self.folder, user="user root;" if os.geteuid() == 0 else "", **self.ports))
        self.start(["nginx", "-c", path + "nginx.conf"])
        self.start([self.divvy, "serve", path + "fleet.yaml",
                    "--http", f"127.0.0.1:{self.ports['divvy']}", "--grpc", f"127.0.0.1:{self.ports['grpc']}",
                    "--metrics", f"127.0.0.1:{self.ports['metrics']}"])
        self.lengths = {}
        for name, count in MESSAGES.items():
            body, self.lengths[name] = http_body(count)
            for kind, content in (("http", body), ("grpc", grpc_body(count))):
                with open(self.file(kind, name), "wb") as out:
                    out.write(content)
        self.await_ready()

    def start(self, command):
        self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def file(self, kind, message):
        return os.path.join(self.folder, kind + message.replace(" ", ""))

    def await_ready(self):
        message = "1 KiB"
        kserve = ["-H", f"Inference-Header-Content-Length: {self.lengths[message]}"]
        grpc = ["--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers"]
        for way, options, kind in (("worker", kserve, "http"), ("nginx", kserve, "http"), ("nginx_h2", kserve + grpc[:1], "http"), ("divvy", kserve, "http"),
                                   ("grpc", grpc, "grpc")):
            for _ in range(500):
                done = subprocess.run(["curl", "-sf", "-D", "-", "-o", "/dev/null", "--data-binary",
                                       f"@{self.file(kind, message)}"] + options + [self.url(way)], capture_output=True, check=False)
                if done.returncode == 0 and (kind == "http" or b"grpc-status: 0" in done.stdout):
                    break
                time.sleep(0.02)
            else:
                sys.exit(f"{way} does not answer: {done.stdout.decode()}")

    def url(self, way):
        call = "inference.GRPCInferenceService/ModelInfer" if way == "grpc" else "v2/models/m/infer"
        return f"http://127.0.0.1:{self.ports[way]}/{call}"

    def h2load(self, way, message, clients, seconds):
        """Requests a second, and p99 in microseconds."""
        log = os.path.join(self.folder, "log")
        command = ["h2load", "-t1", f"-c{clients}", f"-D{seconds}", "--warm-up-time=1", f"--log-file={log}"]
        if way == "grpc":
            command += ["-d", self.file("grpc", message), "-H", "content-type: application/grpc", "-H", "te: trailers"]
        else:
            command += ["-d", self.file("http", message), "-H", f"Inference-Header-Content-Length: {self.lengths[message]}"]
            command += ["--h1"] if way != "nginx_h2" else []
        out = subprocess.run(command + [self.url(way)], capture_output=True, text=True, check=True).stdout
        if not re.search(r" 0 failed, 0 errored", out):
            sys.exit(f"{way}: {out}")
        with open(log) as lines:
            times = sorted(int(line.split()[2]) for line in lines)
        os.unlink(log)
        return float(re.search(r"([\d.]+) req/s", out)[1]), times[len(times) * 99 // 100]

    def paced(self, way, rate, seconds):
        """The median in microseconds of 1 KiB at `rate`, Poisson."""
        out = subprocess.run([self.divvy, "bench", f"http://127.0.0.1:{self.ports[way]}", "--model", "m", "--shape", "x:256", "--precise",
                              "--rate", str(rate), "--duration", f"{seconds}s", "-o", "json"], capture_output=True, text=True, check=True)
        return json.loads(out.stdout)["all"]["latency"]["p50"]["ms"] * 1000

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def verdict(met):
    return "met" if met else "MISSED"


def contest(stage, args, names):
    """All messages and numbers of clients; names are of NGINX's way and ours. Our rate, by message and clients."""
    ours = {}
    for message in MESSAGES:
        for clients in CLIENTS:
            found = {name: [] for name in names}
            for _ in range(args.rounds):
                for way, figures in found.items():
                    figures.append(stage.h2load(way, message, clients, args.seconds))
            (rate, tail), (our_rate, our_tail) = (
                [statistics.median(column) for column in zip(*figures)] for figures in found.values())
            ours[message, clients] = our_rate
            print(f"{names[1]:>6} {message:>8} {clients:>8} {rate:12.0f} {our_rate:12.0f} {our_rate / rate:7.2f} "
                  f"{verdict(our_rate >= LEAST_RATE * rate):>7} {tail:13.0f} {our_tail:13.0f} {our_tail / tail:7.2f} "
                  f"{verdict(our_tail <= MOST_TAIL * tail):>7}", flush=True)
    return ours


def half_load(stage, args, full):
    """What the way through the router adds to the median of asking the worker itself."""
    for rate in (full / 8, full / 2):
        medians = {"worker": [], "nginx": [], "divvy": []}
        for _ in range(args.rounds):
            for way, figures in medians.items():
                figures.append(stage.paced(way, round(rate), args.seconds))
        nginx, divvy = (statistics.median(there - direct for there, direct in zip(medians[way], medians["worker"]))
                        for way in ("nginx", "divvy"))
        print(f"{rate:8.0f}/s: the worker itself {statistics.median(medians['worker']):.0f} us, NGINX adds {nginx:.0f}, divvy {divvy:.0f} "
              f"(bar {MOST_ADDED_US}): {verdict(divvy <= MOST_ADDED_US)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    args = parser.parse_args()
    for program in ("nginx", "h2load", "curl"):
        if not shutil.which(program):
            print(f"skipped: {program} is not installed (apt install nginx-light nghttp2-client curl)")
            return
    stage = Stage(args.build)
    try:
        print(f"bars: at least {LEAST_RATE} of NGINX's throughput, at most {MOST_TAIL} of its p99")
        print(f"{'':>6} {'message':>8} {'clients':>8} {'nginx req/s':>12} {'divvy req/s':>12} {'ratio':>7} {'':>7} "
              f"{'nginx p99 us':>13} {'divvy p99 us':>13} {'ratio':>7}")
        full = contest(stage, args, ("nginx", "divvy"))
        contest(stage, args, ("nginx_h2", "grpc"))
        print(f"median added, 1 KiB, at an eighth and half of the load that divvy takes of {FULL_LOAD_CLIENTS} clients:")
        half_load(stage, args, full["1 KiB", FULL_LOAD_CLIENTS])
    finally:
        stage.stop()


if __name__ == "__main__":
    main()
