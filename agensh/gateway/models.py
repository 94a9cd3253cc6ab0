"""The provider's list of models, as a worker may see it."""

from __future__ import annotations

import json
from collections.abc import Collection


def only_allowed(body: bytes, allowed: Collection[str]) -> bytes:
    """Return a model list without what the run does not allow; what is no list stays as it is."""
    if not allowed:
        return body
    try:
        value = json.loads(body)
    except ValueError:
        return body
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        return body
    kept = [model for model in value["data"] if isinstance(model, dict) and model.get("id") in allowed]
    value["data"] = kept
    for key, model in (("first_id", kept[0] if kept else None), ("last_id", kept[-1] if kept else None)):
        if key in value:
            value[key] = model["id"] if model else None
    return json.dumps(value).encode()
