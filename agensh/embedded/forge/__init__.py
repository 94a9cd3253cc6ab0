"""A small Git forge that speaks Gitea's REST, event stream and smart HTTP over real bare repositories.

It serves the subset that Agensh's provisioning, routers, tools and prompts use, with the response shapes of Gitea 1.27
and with its traps kept: whole-second inclusive `since`, one notification row per thread, a lossy event stream of counts
only, 405 "Please try again later" while a pull request is checked or in conflict, 409 on a lost race for the base.

What a client was told survives `kill -9`: rows are committed with fsync before the answer, and at the start
`reconcile` brings rows and refs to agreement.
"""
