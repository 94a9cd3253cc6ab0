"""A scripted model: what a provider's API answers on the wire, with a script in place of a model.

It speaks the three wires that single-agent CLIs use (Responses, Chat Completions, Messages), streams, calls tools by
the names each CLI offers them under, and can fail in every way a provider fails. Who answers is a `Player`:
`directives` does what the prompt spells out, for tests; `team` plays the work cycle for `agensh demo --harness`.
"""

from __future__ import annotations

from pathlib import Path

NAME = "scripted"
"""The model's name on the wire. CLIs do not know it, so they take their plain tools and no special window for it."""
PRICES = Path(__file__).with_name("prices.toml")
"""What its tokens cost in a demo's report."""
