"""What a worker answers to a direct message: briefly, and never to an answer, so that no two go on forever."""

from __future__ import annotations

import re

from adapters.scripted.reading import Message
from adapters.scripted.session import Job

_ABOUT = re.compile(r"^(?P<tool>[A-Za-z0-9_-]+): ")
THANKS = "Thanks"


def reply_to(message: Message, job: Job | None) -> str | None:
    """Return the answer, None when none is due."""
    text = message.text.strip()
    if text.startswith(THANKS):
        return None
    about = _ABOUT.match(text)
    tool = about["tool"] if about else ""
    mine = job is not None and job.tool == tool
    if mine and job is not None and "I release mine" in text:
        return f"{THANKS}, I keep {tool} ({job.claim})."
    if "I fix it" in text:
        return f"{THANKS}, go ahead with {tool}." if not mine else f"{THANKS}, I am on {tool} too: I leave it to you."
    if text.endswith("?"):
        if job is None:
            return f"{THANKS} for asking: I am between two pieces of work."
        return f"{THANKS} for asking: I am on {job.tool} ({job.claim}), it will be on main soon."
    return None
