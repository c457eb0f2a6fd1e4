"""Decisions per second with 100 rules: the first that matches, the last, none at all, and many on one tool."""

from collections.abc import Callable

from bench.measure import cost, median
from bench.table import Report, at_least
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Subjects
from codesdk.policy.decision import all_opinions, decide
from codesdk.policy.rules import Rule, RulePolicy

RULES = 100


async def run(report: Report, quick: bool) -> None:
    calls = 500 if quick else 20_000
    report.progress("decisions a second of processor time")
    for name, policy, question in _cases():

        def judge(policy: RulePolicy = policy, question: PolicyQuestion = question) -> object:
            return decide(all_opinions(question, policy.evaluate(question)))

        found = _micros(judge, calls)
        report.line(name, 1e6 / found, "/s", goal=at_least(50_000), note=f"{found:.1f} µs each")


def _micros(work: Callable[[], object], calls: int, rounds: int = 5) -> float:
    """Return the processor time of a call in the median round: nothing here waits for anything."""
    found: list[float] = []
    for _ in range(rounds):
        with cost() as spent:
            for _ in range(calls):
                work()
        found.append(spent.cpu_s / calls * 1e6)
    return median(found)


def _cases() -> list[tuple[str, RulePolicy, PolicyQuestion]]:
    mixed, narrow = RulePolicy(_mixed()), RulePolicy(_narrow())
    return [
        (f"{RULES} rules, none matches", mixed, _question("workspace.write", "other/file.txt")),
        (f"{RULES} rules, the last matches", mixed, _question("workspace.write", "last/file.txt")),
        (f"{RULES} path rules on one tool, none matches", narrow, _question("workspace.write", "x/y.txt")),
        (f"{RULES} path rules on one tool, the last matches", narrow, _question("workspace.write", "d99/a")),
    ]


def _mixed() -> list[Rule]:
    """Rules as people have them: by tool, by class, by path, by host, by command."""
    kinds = [
        {"tool": "app.tool_{n}"},
        {"tool_class": "network", "host": "*.host-{n}.example"},
        {"tool": "workspace.*", "path": "area_{n}/**"},
        {"tool": "workspace.exec", "argv": ["program-{n}"]},
        {"path": "**/.secret_{n}"},
    ]
    rules = [_rule(n, kinds[n % len(kinds)]) for n in range(RULES - 1)]
    return [*rules, Rule(id="last", result="ask", path="last/**")]


def _narrow() -> list[Rule]:
    return [Rule(id=f"r{n}", result="ask", tool="workspace.write", path=f"d{n}/**") for n in range(RULES)]


def _rule(number: int, fields: dict[str, object]) -> Rule:
    def fill(value: object) -> object:
        if isinstance(value, list):
            return [fill(part) for part in value]
        return str(value).format(n=number)

    filled = {name: fill(value) for name, value in fields.items()}
    return Rule(id=f"r{number}", result="deny", **filled)  # type: ignore[arg-type]


def _question(name: str, path: str) -> PolicyQuestion:
    return PolicyQuestion(
        session_id="ses_bench",
        name=name,
        tool_class="write",
        input={"path": path},
        permission_mode="auto",
        subjects=Subjects(paths=[path]),
    )
