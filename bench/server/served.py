"""`divvy serve` for a benchmark: up when its workers are, ended with the `with`."""

import json
import subprocess
import sys


class Served:
    """`words` come after `divvy serve`. Its log goes to the file `log`, one JSON object a line."""

    def __init__(self, divvy, words, log="/dev/null", cwd=None):
        self.log = open(log, "w")
        listen = [word for name in ("http", "grpc", "metrics") for word in (f"--{name}", "127.0.0.1:0")]
        self.process = subprocess.Popen([divvy, "serve", *words, "--log", "json", *listen], cwd=cwd, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.http = self.metrics = None  # HOST:PORT.
        said = []
        for line in self.process.stderr:
            self.log.write(line)
            said.append(line)
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "listening":
                self.http, self.metrics = event["http"], event["metrics"]
            if event.get("event") == "ready":
                break
        else:
            sys.exit(f"divvy serve has ended:\n{''.join(said[-5:])}")
        self.log.flush()
        # Nobody reads on: a full pipe would stop it.
        self.reader = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        self.reader.wait(60)
        self.log.close()
