"""Background tasks: a failure is logged, an end or a cancellation is not."""

from __future__ import annotations

import asyncio

import pytest

from common.background import background


@pytest.mark.parametrize("how", ["fails", "ends", "cancelled"])
def test_a_background_task_that_fails_is_logged(caplog: pytest.LogCaptureFixture, how: str) -> None:
    async def work() -> int:
        await asyncio.sleep(3600 if how == "cancelled" else 0)
        return 1 // (how == "ends")

    async def test() -> None:
        task = background(work(), "pings")
        if how == "cancelled":
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0)

    asyncio.run(test())
    assert ("a background task failed: pings" in caplog.text) == (how == "fails")
    assert ("ZeroDivisionError" in caplog.text) == (how == "fails")
