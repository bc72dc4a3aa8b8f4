"""bench/gpu/foretell.py, where each kind of request always takes the same, so that nothing is left to the draws."""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLIENT_MS = 0.25


def percentiles(first, in_a_row, secs):
    """Of a queue's latencies, by waiting times: who comes while there is work waits for all that is left of it."""
    generator, due, left, found = random.Random(1), 0.0, 0.0, []
    while True:
        since = generator.expovariate(40.0)
        due += since
        if due > secs:
            found.sort()
            return tuple(found[int(len(found) * part)] + CLIENT_MS for part in (0.5, 0.99))
        left = max(0.0, left - since * 1e3)
        left += in_a_row if left > 0 else first
        found.append(left)


def run(name, way, first, in_a_row):
    p50, _ = percentiles(first, in_a_row, 6)
    requests = [[20.0, 0.1, first, 1.0], [0.02, 0.1, in_a_row, 1.0]] * 50
    return {"name": name, "way": way, "secs": 6.0, "infer": {"p50": p50, "p99": 9.0, "requests_ms": requests}}


class Foretell(unittest.TestCase):
    def test_p99_is_that_of_a_queue_with_the_requests_own_times(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for one in (run("graph", "alone", 2.4, 2.3), run("graph+vgg16", "tight", 2.5, 4.0), {"job": ["infer"], "report": []}):
                print(json.dumps(one), file=file)
            file.write('{"name": "graph", "infer": {"requests_ms')
            file.flush()
            told = subprocess.run([sys.executable, os.path.join(ROOT, "bench/gpu/foretell.py"), file.name], check=True,
                                  capture_output=True, text=True).stdout
        alone, tight = ([cell.strip() for cell in line.strip("| ").split("|")] for line in told.splitlines()[2:])
        alone_p99, tight_p99, held_p99 = (percentiles(*times, 10)[1] for times in ((2.4, 2.3), (2.5, 4.0), (2.5, 2.3)))
        self.assertEqual(alone, ["graph", "alone", "6", "9.00", f"{percentiles(2.4, 2.3, 6)[1]:.2f}", f"{alone_p99:.2f}", "1.000",
                                 f"{alone_p99:.2f}", "1.000"])
        self.assertEqual(tight, ["graph+vgg16", "tight", "6", "9.00", f"{percentiles(2.5, 4.0, 6)[1]:.2f}", f"{tight_p99:.2f}",
                                 f"{tight_p99 / alone_p99:.3f}", f"{held_p99:.2f}", f"{held_p99 / alone_p99:.3f}"])
        self.assertGreater(tight_p99, held_p99 * 1.2, "requests in a row are too few to tell")


if __name__ == "__main__":
    unittest.main()
