"""What is read of a worker's error, whatever it sends."""

import pytest

from app.api.worker_error import MESSAGE_MAX, WorkerError, worker_error


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'{"error":{"message":"too long","type":"BadRequestError","param":"messages","code":400}}',
            WorkerError(400, "too long", "BadRequestError", "messages"),
        ),
        (b'{"type":"error","error":{"type":"api_error","message":"x"}}', WorkerError(400, "x", "api_error")),
        (b'{"object":"error","message":"x","type":"T","param":null}', WorkerError(400, "x", "T")),
        (b'{"error":"Unauthorized"}', WorkerError(400, "Unauthorized")),
        (b'{"detail":"Not Found"}', WorkerError(400, "Not Found")),
        (b'{"detail":[{"loc":["body"]}]}', WorkerError(400)),
        (b'{"error":{"message":7,"type":[]}}', WorkerError(400)),
        (b'["message"]', WorkerError(400)),
        (b"Internal Server Error", WorkerError(400)),
        (b'{"error":{"message":"cut o', WorkerError(400)),
        (b'{"message":"\xff"}', WorkerError(400)),
        (b"", WorkerError(400)),
    ],
)
def test_what_a_worker_says(body: bytes, said: WorkerError) -> None:
    assert worker_error(400, body) == said


def test_a_message_is_cut() -> None:
    said = worker_error(422, b'{"message":"%s"}' % (b"x" * 2 * MESSAGE_MAX))
    assert said.text == "status 422: " + "x" * MESSAGE_MAX
    assert worker_error(500, b"").text == "status 500"
