"""Clients that ask again and again, and what became of it, on their own clock."""

import http.client
import json
import threading
import time
from collections import Counter
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.patience import PATIENCE_S

BODY = {"model": "m", "messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 2}


class Answer(NamedTuple):
    """at: seconds since the load began. status: 0 when the connection was cut."""

    at: float
    url: str
    status: int


def ask(url: str, key: str) -> int:
    """The status of one request, over a connection of its own, so that any process may get it."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}", "connection": "close"}
        connection.request("POST", "/v1/chat/completions", json.dumps(BODY), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0  # cut off by a process that was killed
    finally:
        connection.close()


class Load:
    """One client for each of `urls` (any of them more than once), until the end of a `with`."""

    def __init__(self, urls: list[str], key: str, pause_s: float = 0.04) -> None:
        self.answers: list[Answer] = []
        self._key = key
        self._pause_s = pause_s
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(url,)) for url in urls]
        for thread in self._threads:
            thread.start()

    def _run(self, url: str) -> None:
        while not self._stop.is_set():
            status = ask(url, self._key)
            self.answers.append(Answer(self.now, url, status))
            time.sleep(self._pause_s)

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def statuses(self) -> Counter[int]:
        return Counter(answer.status for answer in self.answers)

    def served(self, since: float = 0.0) -> int:
        return sum(answer.status == 200 and answer.at >= since for answer in self.answers)

    def asked(self, url: str, since: float) -> int:
        return sum(answer.url == url and answer.at >= since for answer in self.answers)
