"""The one place where evidence becomes a decision, for `check`, `fit`, `evaluate` and `report` alike.

The evidence is what a model keeps (`newcomer.evidence`): what checks found in the logs, what serving everybody the best
gains over what was logged, and what personalising adds after t interactions. Checks come first: held-out users of
broken logs are broken in the same way, so that nothing is promised over them.

**The answer**, from the verdict on the logs and from two questions whose answers are 95% intervals over held-out users
(does the best for everybody gain over what was logged? does personalising add to it?), first line that applies:

    logs broken, or nothing could be fitted    no
    logs unknowable                            not yet
    personalising adds, logs doubtful          with care
    personalising adds                         yes
    the best for everybody gains               best for all
    personalising loses                        no
    neither is clear                           not yet

Where the logs have treated and control arms, their difference answers the second question: users were assigned at
random, which no analysis of logs can replace.

**From how many interactions on.** Looking at five numbers of interactions and naming the first whose interval is above
zero would say "yes" too often. The steps are tested in a fixed order instead, the longest first, and the next shorter
one only if the one before is clear: then a false "yes" has the probability of a single test, and "yes from 5 on" means
5 and everything longer. The order begins with the longest that half of the users have the rows for.
"""

from __future__ import annotations

import re
from math import ceil

from newcomer.evidence import PREFERENCES, Everybody, Evidence, GainStep, HeldoutGain, Summary
from newcomer.findings import (
    ARMS,
    ATTRIBUTES,
    GAIN,
    LIFT,
    LOGGING,
    SHARED,
    SPELLING,
    Answer,
    Decision,
    Finding,
    Findings,
    Known,
    finding_chance,
)
from newcomer.gain.propensities import NO_PROPENSITIES
from newcomer.gain.settings import GAINS
from newcomer.interval import FEWEST, interval_in_words

NEXT = "Personalisation is live: fit the next model from the first (--from) and these rows, promote it, keep comparing."
PROMISE = "a model fitted to them cannot be trusted"


def decide_verdict(evidence: Evidence, *, trouble: str = "", todo: str = "") -> Decision:
    """What the evidence comes to; `trouble` says why there is no fit, `todo` what to do about it."""
    checks, summary = evidence.checks, evidence.logs
    heldout = evidence.measured
    logs = _verdict_on_logs(checks)
    if trouble:
        first = f"No: nothing can be learned from these logs: {trouble.rstrip('.')}."
        last = _sentence(todo) if todo else _more(evidence)
        unknown = (
            "Without a fit, the best action for everybody is unknown.",
            "So is what personalising would add.",
        )
        return Decision("no", logs, "unknown", "unknown", None, (), (first, *unknown, last))
    if logs == "broken" and checks is not None:
        return _broken(checks, evidence)
    steps, start = verdict_by_step(heldout, summary)
    everybody, personal = _everybody(heldout, summary), _personal(heldout, steps, start)
    arms = verdict_by_arms(checks)
    if arms is not None:
        personal = arms
    answer = _answer(logs, everybody, personal)
    doubts = findings_of_verdict(checks, "doubtful")
    return Decision(
        answer=answer,
        logs=logs,
        everybody=everybody,
        personal=personal,
        start=start,
        steps=steps,
        sentences=(
            _first(answer, start, doubts, evidence) if arms is None else _first_by_arms(arms, doubts),
            _all_alike(evidence),
            f"{_lift(checks)}{_added(heldout, steps, _personal(heldout, steps, start), checks)}",
            NEXT if arms == answer == "yes" else _advice(answer, personal, evidence, doubts),
        ),
    )


def verdict_by_arms(checks: Findings | None) -> Known | None:
    """Whether personalising adds to the best for everybody, by arms of an experiment; None where these do not tell.

    Users are drawn to arms by lot: where treated and control differ clearly, nothing that is computed from logs says it
    better.
    """
    found = next((one for one in checks or () if one.name == ARMS and one.unit == LIFT), None)
    if checks is None or found is None or found.effect is None or found.p_value is None or found.p_value > checks.level:
        return None
    return "yes" if found.effect > 0 else "no"


def _lift(checks: Findings | None) -> str:
    """What arms say, before what held-out users do."""
    if verdict_by_arms(checks) is None:
        return ""
    found = next(one for one in checks or () if one.name == ARMS)
    sure = finding_chance(found.p_value or 0.0)
    return (
        f"By arms: treated users get {found.effect:+.3g} a decision over the control arm ({sure}). By held-out users: "
    )


def _first_by_arms(known: Known, doubts: tuple[Finding, ...]) -> str:
    """The answer where arms give it."""
    names = f"; the logs are doubtful ({', '.join(one.name for one in doubts)})" if doubts else ""
    if known == "yes":
        word = "Only with care" if doubts else "Yes"
        return f"{word}: personalise; treated users get more reward than the control arm{names}."
    return f"Serve everybody the best action: treated users get less reward than the control arm, which gets it{names}."


def _verdict_on_logs(checks: Findings | None) -> str:
    """The verdict on the logs, whatever there is to gain; "unchecked" without checks."""
    return "unchecked" if checks is None else checks.verdict


def findings_of_verdict(checks: Findings | None, verdict: str) -> tuple[Finding, ...]:
    """The findings on the logs with this verdict."""
    return tuple(
        one for one in checks or () if one.verdict == verdict and (verdict == "broken" or one.name not in GAIN)
    )


def verdict_by_step(
    heldout: HeldoutGain | None, summary: Summary | None
) -> tuple[tuple[tuple[int, Known], ...], int | None]:
    """Whether personalising adds to the best for everybody after each number of interactions, and from when on it does.

    The steps are tested in a fixed order, the longest first, until one is not clear. A reward far outside all others
    may decide by itself what users seem to prefer, and heavy tails may hide it: then nothing is clear.
    """
    steps = heldout.steps if heldout else ()
    most = max((step.people for step in steps), default=0)
    found: dict[int, Known] = {step.interactions: _alone(step) for step in steps}
    if summary is not None and summary.hiding:  # what is nothing may be hidden; a clear loss is one
        lost = {step.interactions for step in steps if step.high < 0}
        found = {t: known if known == "yes" or t in lost else "not clear" for t, known in found.items()}
    start, open_ = None, not (summary is not None and summary.far_rewards)
    for step in sorted(steps, key=lambda one: -one.interactions):
        if found[step.interactions] == "yes" and open_:
            start = step.interactions
        elif 2 * step.people >= most or found[step.interactions] == "no":
            open_ = False
        if found[step.interactions] == "yes" and start != step.interactions:
            found[step.interactions] = "not clear"
    return tuple(found.items()), start


def _alone(step: GainStep) -> Known:
    """One step by itself. Where a newcomer gets less than what was logged, the mean is no ranking to be beaten."""
    worse = step.over_logged is not None and step.over_logged.high < 0
    return "no" if step.high <= 0 or worse else "yes" if step.clear else "not clear"


def _everybody(heldout: HeldoutGain | None, summary: Summary | None) -> Known:
    found = heldout.everybody if heldout else None
    if found is None or found.gain.people < FEWEST:
        return "unknown"
    if summary is not None and summary.far_rewards:
        return "not clear"
    return "yes" if found.gain.clear else "no" if found.gain.high <= 0 else "not clear"


def _personal(heldout: HeldoutGain | None, steps: tuple[tuple[int, Known], ...], start: int | None) -> Known:
    if heldout is None or not steps:
        return "unknown"
    return "yes" if start is not None else "no" if steps[-1][1] == "no" else "not clear"


def _answer(logs: str, everybody: Known, personal: Known) -> Answer:
    if logs == "unknowable":
        return "not yet"
    if personal == "yes":
        return "with care" if logs == "doubtful" else "yes"
    if everybody == "yes":
        return "best for all"
    return "no" if personal == "no" and everybody in ("no", "unknown") else "not yet"


def _broken(checks: Findings, evidence: Evidence) -> Decision:
    """No, and no gain is stated."""
    worst = findings_of_verdict(checks, "broken")
    names = ", ".join(one.name for one in worst)
    return Decision(
        "no",
        "broken",
        "unknown",
        "unknown",
        None,
        (),
        (
            f"No: these logs are broken ({names}), and {PROMISE}.",
            _best_by_means(evidence)
            if {one.name for one in worst} == {LOGGING[-1]}
            else "They cannot show which action is best for everybody.",
            "Nor can they show what personalising would add: held-out users come from the same logs.",
            " ".join(dict.fromkeys(_sentence(one.advice) for one in worst)),
        ),
    )


def _best_by_means(evidence: Evidence) -> str:
    """What logs show in which each user met one kind of action only."""
    found = evidence.measured.everybody if evidence.measured else None
    means = f" By the means of actions: {_names(found)}." if found is not None and found.best else ""
    return (
        "If chance decided which kind of action a user met, as in an A/B test, the means of the actions still show "
        f"which is best for everybody.{means}"
    )


def verdict_step(heldout: HeldoutGain) -> GainStep:
    """The step that stands first in every command: `look` interactions, or the longest before that was measured."""
    within = [step for step in heldout.steps if step.interactions <= GAINS.look]
    return within[-1] if within else heldout.steps[0]


def _first(answer: Answer, start: int | None, doubts: tuple[Finding, ...], evidence: Evidence) -> str:
    """The answer, with when."""
    names = ", ".join(one.name for one in doubts)
    if answer in ("yes", "with care"):
        word = "Yes" if answer == "yes" else "Only with care"
        doubt = f"; the logs are doubtful ({names})" if answer == "with care" else ""
        return f"{word}: personalise from {verdict_times(start or 0)} on; before that, {_before(evidence)}{doubt}."
    if answer == "best for all":
        care = f", with care: the logs are doubtful ({names})" if doubts else ""
        return f"Serve everybody the best action{care}; there is no evidence that personalising adds to it."
    if answer == "no":
        return "No: in these logs neither the best action for everybody nor personalising gains anything."
    if _verdict_on_logs(evidence.checks) == "unknowable":
        return "Not yet: too few users, or too short histories, to check these logs."
    if evidence.measured is None:
        return "Not yet: the gain of new users was not measured (few users, short histories, or an old model)."
    if evidence.logs is not None and evidence.logs.hiding:
        return f"Not yet: {evidence.logs.hiding} may hide what new users would gain."
    return "Not yet: these logs do not show clearly that new users would gain."


def _before(evidence: Evidence) -> str:
    """What to serve before the first interaction that counts: attributes stay where held-out users gain by them."""
    known = any(one.kept for one in evidence.attributes)
    return "choose by the attributes of the user, as PriorUCB does" if known else "serve everybody the best action"


def _all_alike(evidence: Evidence) -> str:
    """What everybody should get, what that gains, and which ids stand in the way."""
    found = evidence.measured.everybody if evidence.measured else None
    if found is None:
        return "What everybody should get was not measured."
    best = f"Best for everybody{_scale(found)}: {_names(found)}." if found.best else "Logs name no actions."
    spelled = next((one for one in evidence.checks or () if one.name == SPELLING), None)
    joined = f" {spelled.what} {_sentence(spelled.advice)}" if spelled else ""
    arm = evidence.measured.arm if evidence.measured else ""
    logged = f' Here "logged" means what the {arm} arm showed.' if arm else ""
    return f"{best}{joined} {verdict_worth(found)}{logged}{_if_random(found, evidence)}"


def _scale(found: Everybody) -> str:
    """What the rewards that follow are, where they are no plain means."""
    return {
        "typical": " by the typical reward (the mean of log(1 + reward), transformed back; a few large rewards may "
        "give another action the higher mean)",
        "heavy tails": " by shrunken means, because a few large rewards dominate them (no order is certain, and there "
        "is no interval)",
    }.get(found.scale, "")


def verdict_worth(found: Everybody) -> str:
    """How serving everybody the best was valued, with both rewards and the gain."""
    if found.by == "propensities":
        both = f"{found.reward.value:.4g} against {found.logged:.4g} logged (by propensities, doubly robust)"
        gain = interval_in_words(found.gain)
        return f"Serving everybody the action with the highest population mean pays {both}: {gain}."
    return (
        f"When one of {found.choices} of their own logged rows is picked, held-out users get {found.reward.value:.4g} "
        f"by the population mean and {found.logged:.4g} by a random pick: {interval_in_words(found.gain)}."
    )


def _if_random(found: Everybody, evidence: Evidence) -> str:
    """What a randomised test would show, where no propensities are logged and no test finds a rule in the logging."""
    few = 1 < found.actions <= GAINS.trial
    if found.why != NO_PROPENSITIES or not found.best or not few or found.scale != "mean" or evidence.logs is None:
        return ""
    if any(
        one.name in (*LOGGING, ATTRIBUTES) and one.verdict in ("broken", "doubtful") for one in evidence.checks or ()
    ):
        return ""
    if any(one.name == SPELLING for one in evidence.checks or ()):
        return ""  # ids that are likely the same action are counted as several
    best = found.best[0]
    return (
        f" If actions were drawn at random (an A/B test), {_in_sentence(best.name)} for everybody would pay "
        f"{best.mean:.3g} where all rows paid {evidence.logs.mean_reward:.3g} on average: add a column propensity "
        f"(1/{found.actions:,} in each row if all were equally likely) to have that measured."
    )


def _names(found: Everybody) -> str:
    """The best actions with what they pay."""
    best, alike = found.best[: GAINS.named], " (they do not differ beyond chance)" if found.alike else ""
    heavy = found.scale == "heavy tails"
    ends = ["" if heavy else f" ({one.low:.3g} to {one.high:.3g})" for one in best]
    names = [f"{_in_sentence(one.name)} at {one.mean:.3g}{end}" for one, end in zip(best, ends, strict=True)]
    return f"{', '.join(names)}{alike}"


def verdict_name(name: str) -> str:
    """A name in one line, without what a terminal would take for a command, and not too long.

    >>> verdict_name("a\\nfilm")
    'a film'
    """
    plain = "".join(letter for letter in " ".join(name.split()) if letter.isprintable())
    return plain if len(plain) <= GAINS.longest_name else f"{plain[: GAINS.longest_name - 3]}..."


def _in_sentence(name: str) -> str:
    """The name of an action; a bare number would read as a reward.

    >>> _in_sentence("7"), _in_sentence("7 up")
    ('action 7', '7 up')
    """
    shown = verdict_name(name)
    return f"action {shown}" if re.fullmatch(r"[+-]?\d+([.,]\d+)?", shown) else shown


def _added(
    heldout: HeldoutGain | None, steps: tuple[tuple[int, Known], ...], personal: Known, checks: Findings | None
) -> str:
    """What personalising adds, by the number of interactions, with how many users judge each number."""
    if heldout is None or not steps:
        return "What personalising would add was not measured."
    first = {
        "yes": "Personalising adds to that",
        "not clear": "Whether personalising adds to that is not clear",
        "no": "Personalising gets less than that" if _loses(heldout) else "Personalising adds nothing to that",
        "unknown": "What personalising adds is not known",
    }[personal]
    first += f": {_when(dict(steps))}" if personal == "yes" else ""
    counts = {one.people for one in heldout.steps}
    gains = ", ".join(_gain(one, with_users=len(counts) > 1) for one in heldout.steps)
    who = f"{counts.pop():,} held-out users" if len(counts) == 1 else "held-out users"
    who += f" of the {heldout.arm} arm" if heldout.arm else ""
    where = f"in a choice among {heldout.choices}, measured on {who}"
    numbers = f"Gain over the population mean {where}, with 95% intervals: {gains}."
    return f"{first}. {numbers}{_seen(personal, heldout, checks)}"


def _loses(heldout: HeldoutGain) -> bool:
    """Whether personalising is clearly worse than the best for everybody after the most interactions."""
    return heldout.steps[-1].high < 0


def _gain(step: GainStep, *, with_users: bool) -> str:
    """The gain after one number of interactions."""
    users = f" ({step.people:,} users)" if with_users else ""
    same = step.gain == 0 and step.over_mean.error == 0
    value = "none (no choice differs)" if same else interval_in_words(step.over_mean)
    after = verdict_times(1) if step.interactions == 1 else str(step.interactions)
    return f"after {after} {value}{users}"


def _when(known: dict[int, Known]) -> str:
    """What is known after each number of interactions, in words.

    >>> _when({1: "no", 2: "not clear", 5: "yes", 10: "yes", 20: "not clear"})
    'no after 1 interaction, not clear after 2, yes after 5 and 10, too few users to tell after 20'
    """
    late = [t for t, one in known.items() if one == "yes"]
    never = [t for t, one in known.items() if one == "no" and t < late[0]]
    open_ = [t for t, one in known.items() if one not in ("yes", "no") and t < late[0]]
    untold = [t for t, one in known.items() if one != "yes" and t > late[0]]  # by a few long histories
    groups = [("no", never, "or"), ("not clear", open_, "or"), ("yes", late, "and")]
    groups.append(("too few users to tell", untold, "or"))
    told = [(f"{word} after {_listed(times, joint)}", times) for word, times, joint in groups if times]
    unit = " interaction" if told[0][1] == [1] else " interactions"
    return ", ".join([told[0][0] + unit, *[words for words, _ in told[1:]]])


def _agreed(checks: Findings | None) -> Finding | None:
    """The finding on shared preferences, where a test finds some."""
    found = next((one for one in checks or () if one.name == SHARED), None)
    sure = found is not None and found.p_value is not None and checks is not None and found.p_value <= checks.level
    return found if sure and found is not None and (found.effect or 0.0) >= GAINS.agreed else None


def _seen(personal: Known, heldout: HeldoutGain, checks: Findings | None) -> str:
    """Preferences that a test finds, and that a choice shows little of."""
    found = _agreed(checks)
    if personal == "yes" or found is None or found.p_value is None:
        return ""
    last = heldout.steps[-1].interactions
    little = "gains too little from them" if personal == "no" else "shows no clear gain from them"
    return (
        f" The two halves of a history do agree on preferences ({finding_chance(found.p_value)}), but choosing "
        f"among {heldout.choices} after {verdict_times(last)} {little}."
    )


def _advice(answer: Answer, personal: Known, evidence: Evidence, doubts: tuple[Finding, ...]) -> str:
    """What to do, as it follows from the evidence."""
    if answer == "with care":
        hidden = ""
        if evidence.logs is not None and evidence.logs.hiding:
            hidden = f" {_sentence(evidence.logs.hiding)[:-1]} may hide what users prefer: {evidence.logs.remedies}."
        return (
            f"Resolve these doubts first: {', '.join(one.name for one in doubts)}; or test it on a small random share "
            f"of new users beside the current system.{hidden}"
        )
    if answer == "yes":
        return (
            "PriorUCB does both: it starts from the population mean, with a little exploration, and learns from every "
            "reward. Test it on a random share of new users beside the current system, and compare."
        )
    serve = (
        "Serve everybody the best action, to a random share of new users first. " if answer == "best for all" else ""
    )
    logs = evidence.logs
    if logs is not None and logs.hiding and personal != "yes":
        return (
            f"{serve}{_sentence(logs.hiding)[:-1]} may hide what users prefer: {logs.remedies}; then run this command "
            "again."
        )
    return f"{serve}{_more(evidence)}"


def _more(evidence: Evidence) -> str:
    """What to log, where logs do not suffice: longer histories, more users, or larger choices."""
    heldout, summary = evidence.measured, evidence.logs
    if heldout is None or not heldout.steps:
        if any(one.name == ARMS for one in evidence.checks or ()):
            return "Serve more users at random: only these users can be used to evaluate the model."
        if summary is not None and 2 * summary.usable < summary.users:
            return "Log several rows of each user: one row tells nothing about the next."
        return "Log more users, with several rows each."
    last, rows = heldout.steps[-1], heldout.rows
    look = GAINS.look
    if _loses(heldout):
        return "Do not personalise by a fit to these logs: held-out users lose by it."
    if last.interactions < look:
        return (
            f"To measure the gain after {verdict_times(look)}, log at least {heldout.choices + look} rows per user "
            f"({heldout.choices} to choose among, {look} to learn from); the median user has {rows}. (Serving needs no "
            "minimum: a new user is served from the first interaction on.)"
        )
    best = max(heldout.steps, key=lambda one: one.gain / max(one.error, 1e-300))
    if best.gain <= 0 or best.error == 0:
        return _little(evidence, heldout)
    needed = _rounded(best.people * max((best.over_mean.high - best.gain) / best.gain, 1.0) ** 2)
    arm = f" of the {heldout.arm} arm" if heldout.arm else ""
    return (
        f"If the gain after {verdict_times(best.interactions)} is as large as it seems, about "
        f"{needed:,} held-out users{arm} (here "
        f"{best.people:,}) would show it: log more users, or longer histories."
    )


def _little(evidence: Evidence, heldout: HeldoutGain) -> str:
    """What to do where no gain is seen: preferences may be there all the same."""
    facts = evidence.population
    share = dict(facts.forecast.shares(None)).get(PREFERENCES, 0.0) if facts else 0.0
    what = evidence.logs.learned if evidence.logs else "rewards"
    if _agreed(evidence.checks) is None and share < GAINS.slight:
        return (
            f"These logs do not show that users differ in what they prefer; smaller differences would show in "
            f"histories longer than {heldout.rows} rows, or with more users."
        )
    size = f" ({share:.0%} of the variance of {what})" if share >= GAINS.slight else ""
    return (
        f"Users differ in preferences{size}, but choosing among {heldout.choices} after "
        f"{verdict_times(heldout.steps[-1].interactions)} gains little: log longer histories than {heldout.rows} rows, "
        "or offer more candidates."
    )


def verdict_gain_by_parts(heldout: HeldoutGain) -> str:
    """How much of the gain that stands first comes from shared directions, and how much from repeated actions."""
    step = verdict_step(heldout)
    if step.gain == step.shared == 0:
        return "No gain was measured, neither from shared directions nor from per-action effects."
    if step.lasting is None:
        return "The gain comes from shared directions; too few actions repeat to measure what per-action effects add."
    return (
        f"Of the gain of {step.gain:+.3g} after {verdict_times(step.interactions)}, "
        f"{step.shared:+.2g} comes from shared "
        f"directions and {step.lasting:+.2g} from per-action effects."
    )


def verdict_serving_code(decision: Decision | None, model: str, *, named: bool) -> str:
    """Lines of Python that serve one newcomer as the decision says; nothing where it says not to.

    `named`: whether the model knows its actions by their ids; else candidates are rows of features.
    """
    if decision is None or decision.answer in ("no", "not yet"):
        return ""
    policy = "PopulationMean" if decision.answer == "best for all" else "PriorUCB"
    lines = ["import newcomer as nc", f"policy = nc.{policy}(nc.load({model!r}))"]
    if named:
        lines += [
            "state, ids = policy.start(1), list(policy.model.action_ids)  # one new user, and what can be shown",
            "chosen = ids[policy.choose(state, ids=ids)[0]]  # show this one",
            "policy.update(state, ids=[chosen], reward=[1.0])  # its reward; then choose again",
        ]
    else:
        lines += [
            "state = policy.start(1)  # one new user",
            "chosen = policy.choose(state, candidates)[0]  # candidates: features of what can be shown, a row each",
            "policy.update(state, candidates[[chosen]], [1.0])  # its reward; then choose again",
        ]
    return "\n".join(lines)


def _rounded(value: float) -> int:
    """Two figures, upwards."""
    unit = int(10 ** max(len(str(int(value))) - 2, 0))
    return ceil(value / unit) * unit


def verdict_times(count: int) -> str:
    """`1 interaction`, `5 interactions`.

    >>> verdict_times(1), verdict_times(5)
    ('1 interaction', '5 interactions')
    """
    return f"{count} interaction{'s' * (count != 1)}"


def _listed(numbers: list[int], word: str) -> str:
    """`1, 2 or 5`."""
    head = ", ".join(map(str, numbers[:-1]))
    return f"{head} {word} {numbers[-1]}" if head else str(numbers[-1])


def _sentence(text: str) -> str:
    plain = text.strip()
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith((".", "!", "?")) else ".")
