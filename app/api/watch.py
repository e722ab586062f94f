"""Notices that a client left, and ends the work that is done for it."""

import asyncio

from app.api.respond import Receive


class ClientWatch:
    """Waits for the client to leave, and then cancels the task that made it.

    Frameworks report a disconnect only to who asks, and only after the response began; an engine would go on working
    for nobody through a whole prefill.
    """

    __slots__ = ("_is_over", "_receive", "is_client_gone", "task")

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.is_client_gone = False
        self._receive = receive
        self._is_over = False

    async def run(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._is_over:
            self.is_client_gone = True
            self.task.cancel()

    def stop(self) -> None:
        """The response is complete. To be called before anything is awaited after its last byte was sent."""
        self._is_over = True
