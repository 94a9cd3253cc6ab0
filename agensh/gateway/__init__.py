"""The gateway: the only process that holds the provider's credential; it relays, meters and bounds workers' requests.

Contract:
- What the provider answers reaches the worker unchanged and unbuffered: status, headers, body, errors, `retry-after`.
  A slow reader slows the provider down; a reader that leaves ends the provider's request.
- What the provider reports of a request's tokens is committed before the last event of its stream, or its body, is
  sent. So a worker never holds a finished answer that was not metered, and a killed gateway loses no metered usage. A
  request is written down when it is sent to the provider; one that was under way when the gateway was killed is
  `unmetered` after the next start (unless it had begun in the milliseconds before).
- Nothing is estimated: a stream that was cut, or a provider that reports no tokens, makes an `unmetered` request. It
  keeps what was reported before the cut.
- A budget is looked at before a request is sent to the provider. Requests under way when it is spent go on to their
  end; every later one is refused with 402.
"""
