"""A small Git forge that speaks Gitea's REST, event stream and smart HTTP over real bare repositories.

It serves the subset that Agensh's provisioning, routers, tools and prompts use, with the response shapes of Gitea 1.27
and with its traps kept: whole-second inclusive `since`, one notification row per thread, a lossy event stream of counts
only, 405 "Please try again later" while a pull request is checked or in conflict, 409 on a lost race for the base.

What a client was told survives `kill -9`: rows are committed with fsync before the answer, a merge's intent is written
before its ref moves, and at the start `sync.reconcile` brings rows and refs to agreement.

Where it differs from Gitea on purpose:

- every request needs a caller, also for public repositories;
- there are no forks, organisations, teams, milestones, attachments, webhooks, signatures or SSH, no scheduled merges
  (`merge_when_checks_succeed` is 422) and no renaming of repositories; a rule that asks for one of them is refused
  with 422 rather than ignored;
- notifications are written together with what caused them, so none is lost or late, and the stream ticks every second
  (`ForgeSettings.event_source_update_time`) instead of every ten;
- two pull requests of the same branches cannot come to be by a race.
"""
