"""A rehearsal: the coordination of a whole team under load, with workers that only call and listen.

`plan` says what is rehearsed, `load` and `worker` make the calls, `reading` finds what was shown, `counting` counts,
`rehearsal` runs all of it. docs/rehearse.md says what the figures mean.
"""
