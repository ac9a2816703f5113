"""`python -m benchmarks [--quick | --long] [--only PART ...]`: measure, judge, write, show.

Each section that is through is written at once, so that a run that is cut off can be finished by
`--only` with the rest.
"""

from __future__ import annotations

import argparse
import sys
import traceback

from benchmarks import command, report, tables
from benchmarks.bench import FULL, QUICK, Bench
from benchmarks.goals import GOALS
from benchmarks.results import RESULTS, Results
from benchmarks.sections import LONG, SECTIONS, SHORT
from tests.kafka.jars import NoKafkaError
from tests.kafka.tools import Tools


def arguments(given: list[str]) -> argparse.Namespace:
    parser = command.parser("benchmarks", __doc__, SECTIONS, "little of everything, in files of its own")
    parser.add_argument("--long", action="store_true", help="what takes long: the gigabytes, the other cases")
    parser.add_argument("--render", action="store_true", help="only write the table anew from the figures")
    return parser.parse_args(given)


def publish(results: Results, name: str) -> None:
    """Write the files, and the README's table when these are its figures."""
    report.write(results, name)
    if name == report.NAME:
        report.write_readme(results)


def main(given: list[str]) -> int:
    options = arguments(given)
    form = "quick" if options.quick else "full"
    name = report.QUICK_NAME if options.quick else report.NAME
    if options.render:
        publish(Results.read(RESULTS / f"{name}.json"), name)
        return 0
    try:
        tools = Tools()
    except NoKafkaError as problem:
        print(f"cannot measure: {problem}", file=sys.stderr)
        return 2
    results = Results() if options.system else Results.read(RESULTS / f"{name}.json")
    size = QUICK if options.quick else FULL
    if options.rounds:
        size = size.with_rounds(options.rounds)
    chosen = options.only or (LONG if options.long else SHORT)
    with command.data_directory(options) as directory:
        bench = Bench(tools, directory, size, form, options.system)
        failed = []
        try:
            for section in (section for section in SECTIONS if section in chosen):
                try:
                    results.sections[section] = command.measured(bench, section, SECTIONS, form)
                except Exception:
                    traceback.print_exc()  # the others are worth having
                    failed.append(section)
                    bench.close()
                    continue
                if not options.system:
                    publish(results, name)
        finally:
            bench.close()
    print("\n" + tables.terminal(tables.table(results, GOALS)))
    if not options.system:
        print(f"\nwritten to {RESULTS / name}.md")
    if failed:
        print(f"failed, and to be made up for: --only {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    command.end_when_told()
    sys.exit(main(sys.argv[1:]))
