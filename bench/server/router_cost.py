#!/usr/bin/env python3
"""What the router costs: `divvy serve` over one synthetic worker that takes no time, against NGINX as a plain reverse proxy
to the same kind of worker, in one run. Called by `make bench`; needs nginx and h2load (nghttp2-client).

    bench/server/router_cost.py BUILD [--rounds 3] [--seconds 3]

Ratios are medians over rounds that take turns, so that a noisy machine is noisy to both.
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
  access_log off; client_max_body_size 100m; client_body_buffer_size 1m; proxy_buffers 16 64k;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream worker {{ server unix:{folder}/worker.sock; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port}; keepalive_requests 1000000000;
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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
        self.divvy = os.path.join(build, "apps/divvy/divvy")
        worker = os.path.join(build, "apps/divvy-worker/divvy-worker")
        self.ports = {name: free_port() for name in ("nginx", "divvy", "grpc", "metrics")}
        self.start([worker, "--listen", f"unix:{path}worker.sock", "--model", "m", "--engine", "synthetic", "--max-batch", "8",
                    "--input", "x:FP32:-1", "--output", "y:FP32:1", "--latency-us", "0,0,0,0,0,0,0,0"])
        with open(path + "nginx.conf", "w") as file:
            file.write(NGINX.format(folder=self.folder, port=self.ports["nginx"], user="user root;" if os.geteuid() == 0 else ""))
        self.start(["nginx", "-c", path + "nginx.conf"])
        self.start([self.divvy, "serve", path + "fleet.yaml", "--http", f"127.0.0.1:{self.ports['divvy']}",
                    "--grpc", f"127.0.0.1:{self.ports['grpc']}", "--metrics", f"127.0.0.1:{self.ports['metrics']}"])
        self.messages = {}
        for name, count in (("1 KiB", 256), ("600 KiB", 153600)):
            head = json.dumps({"inputs": [{"name": "x", "shape": [1, count], "datatype": "FP32",
                                           "parameters": {"binary_data_size": 4 * count}}],
                               "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
            file = path + name.replace(" ", "")
            with open(file, "wb") as out:
                out.write(head + bytes(4 * count))
            self.messages[name] = (file, len(head))
        self.await_ready()

    def start(self, command):
        self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def await_ready(self):
        for way in ("nginx", "divvy"):
            for _ in range(500):
                file, length = self.messages["1 KiB"]
                done = subprocess.run(["curl", "-sf", "-o", "/dev/null", "--data-binary", f"@{file}", "-H",
                                       f"Inference-Header-Content-Length: {length}", self.url(way)], check=False)
                if done.returncode == 0:
                    break
                time.sleep(0.02)
            else:
                sys.exit(f"{way} does not answer")

    def url(self, way):
        return f"http://127.0.0.1:{self.ports[way]}/v2/models/m/infer"

    def h2load(self, way, message, clients, seconds):
        """Requests a second and p99 in microseconds."""
        file, length = self.messages[message]
        log = os.path.join(self.folder, "log")
        out = subprocess.run(["h2load", "--h1", "-t1", f"-c{clients}", f"-D{seconds}", "--warm-up-time=1", "-d", file,
                              f"--log-file={log}", "-H", f"Inference-Header-Content-Length: {length}", self.url(way)],
                             capture_output=True, text=True, check=True).stdout
        rate = float(re.search(r"([\d.]+) req/s", out)[1])
        if not re.search(r" 0 failed, 0 errored", out):
            sys.exit(f"{way}: {out}")
        with open(log) as lines:
            times = sorted(int(line.split()[2]) for line in lines)
        os.unlink(log)
        return rate, times[len(times) * 99 // 100]


    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


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
        print(f"{'message':>8} {'clients':>8} {'nginx req/s':>12} {'divvy req/s':>12} {'ratio':>7} {'nginx p99 us':>13} {'divvy p99 us':>13} {'ratio':>7}")
        for message in stage.messages:
            for clients in (1, 8, 32):
                found = {"nginx": [], "divvy": []}
                for _ in range(args.rounds):
                    for way, figures in found.items():
                        figures.append(stage.h2load(way, message, clients, args.seconds))
                rates = {way: statistics.median(rate for rate, _ in figures) for way, figures in found.items()}
                tails = {way: statistics.median(tail for _, tail in figures) for way, figures in found.items()}
                print(f"{message:>8} {clients:>8} {rates['nginx']:12.0f} {rates['divvy']:12.0f} {rates['divvy'] / rates['nginx']:7.2f} "
                      f"{tails['nginx']:13.0f} {tails['divvy']:13.0f} {tails['divvy'] / tails['nginx']:7.2f}", flush=True)
        print("bars: throughput at least 0.8 of NGINX's, p99 at most 1.25 of it")
    finally:
        stage.stop()


if __name__ == "__main__":
    main()
