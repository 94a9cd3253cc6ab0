"""A scripted model: what a provider's API answers on the wire, with a script in place of a model.

It speaks the three wires that single-agent CLIs use (Responses, Chat Completions, Messages), streams, calls tools by
the names each CLI offers them under, and can fail in every way a provider fails. Who answers is a `Player`:
`directives` does what the prompt spells out, for tests.
"""
