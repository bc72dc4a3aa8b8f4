#!/usr/bin/env python3
"""Overload with priorities: `divvy serve` over a synthetic worker gets three times what it can answer, a tenth of it at high
priority. What is answered in time should stay at its peak, and the high priority should not notice.

    bench/server/overload.py BUILD [--seconds 8]

Requests are sent when they are due (Poisson), whatever is under way, and counted from then. One process sends; it is busy
for a quarter of a core.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile

from served import Served

SLO_MS = 150
FLEET = f"""
gpus: {{kind: A100-80GB, count: 1}}
models:
  - {{name: m, profile: profiles.csv, slo: {SLO_MS}ms, load: {{rate: 150}}}}
"""
# 8 ms and 4.8 more for each item: batches pay.
PROFILE = "model,partition,processes,batch,latency_ms,p95_ms,memory_mib,gpu,source\n" + \
          "".join(f"m,7g,1,{batch},{8 + 4.8 * batch:.3f},,1000,A100-80GB,made up\n" for batch in (1, 2, 4, 8, 16))
HIGH, LOW = 1, 5  # Triton's: 1 is highest.


class Load:
    """Sends, and counts what comes back."""

    def __init__(self, port):
        self.port = port
        self.idle = []
        self.counts = {HIGH: [0, 0, 0, 0], LOW: [0, 0, 0, 0]}  # Sent, in time, late, refused.

    async def ask(self, due, priority):
        loop = asyncio.get_running_loop()
        body = json.dumps({"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [0, 1, 2, 3]}],
                           "parameters": {"priority": priority}}).encode()
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        await reader.readexactly(length)
        self.idle.append((reader, writer))
        counts = self.counts[priority]
        counts[0] += 1
        if head.split()[1] != b"200":
            counts[3] += 1
        else:
            counts[1 if (loop.time() - due) * 1000 <= SLO_MS else 2] += 1

    async def run(self, rate, seconds, high_share):
        """The counts by priority, of `seconds` at `rate`."""
        self.counts = {HIGH: [0, 0, 0, 0], LOW: [0, 0, 0, 0]}
        chance = random.Random(1)
        loop = asyncio.get_running_loop()
        due, end, tasks = loop.time(), loop.time() + seconds, []
        while due < end:
            await asyncio.sleep(max(0, due - loop.time()))
            tasks.append(asyncio.ensure_future(self.ask(due, HIGH if chance.random() < high_share else LOW)))
            due += chance.expovariate(rate)
        await asyncio.gather(*tasks)
        return self.counts


async def measure(port, seconds):
    load = Load(port)
    await load.run(100, 1, 0)  # Connections, and what the router learns.
    print(f"{'rate/s':>7} {'goodput/s':>10} {'late':>6} {'refused':>8} {'high sent':>10} {'in time':>8}")
    peak = 0
    for rate in (120, 140, 160, 180, 200):
        low = (await load.run(rate, seconds, 0))[LOW]
        peak = max(peak, low[1] / seconds)
        print(f"{rate:7} {low[1] / seconds:10.1f} {low[2]:6} {low[3]:8}", flush=True)
    counts = await load.run(3 * peak, seconds, 0.1)
    goodput = (counts[HIGH][1] + counts[LOW][1]) / seconds
    kept = counts[HIGH][1] / counts[HIGH][0]
    print(f"{3 * peak:7.0f} {goodput:10.1f} {counts[LOW][2] + counts[HIGH][2]:6} {counts[LOW][3] + counts[HIGH][3]:8} "
          f"{counts[HIGH][0]:10} {kept:8.2%}")
    print(f"goodput at three times the peak: {goodput / peak:.1%} of it (bar 95 %): {'met' if goodput >= 0.95 * peak else 'MISSED'}")
    print(f"high priority in time: {kept:.2%} (bar 99 %): {'met' if kept >= 0.99 else 'MISSED'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="divvy-bench-") as folder:
        for name, text in (("fleet.yaml", FLEET), ("profiles.csv", PROFILE)):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        with Served(os.path.join(args.build, "apps/divvy/divvy"), [os.path.join(folder, "fleet.yaml")]) as served:
            asyncio.run(measure(int(served.http.rsplit(":", 1)[1]), args.seconds))


if __name__ == "__main__":
    main()
