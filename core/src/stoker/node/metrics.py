"""The metrics of the node as Prometheus reads them, and docs/METRICS.md, which is written from their table.

`python -m stoker.node.metrics` writes the page; with `--check` it only says whether it is what it would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from stoker.api.generated import write_or_check
from stoker.fetch.counters import BOUNDS_S, Latency
from stoker.node.counting import MOST_DATA_SETS, OTHERS
from stoker.node.metrictable import METRICS, Metric
from stoker.node.metricvalues import US, Facts

PATH = "docs/METRICS.md"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class NodeCollector(Collector):
    """`facts` is set before each look."""

    def __init__(self) -> None:
        self.facts: Facts | None = None

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterator[Family]:
        if self.facts is not None:
            for metric in METRICS:
                yield _family(metric, self.facts)


def _family(metric: Metric, facts: Facts) -> Family:
    if isinstance(metric.values, Latency):
        return _histogram(metric, *facts.counting.latency(metric.values))
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.text, labels=metric.labels)
    for labels, value in metric.values(facts):
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, counts: list[int], sum_us: int) -> Family:
    buckets, so_far = [], 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True):
        so_far += count
        buckets.append((bound, float(so_far)))
    family = HistogramMetricFamily(metric.name, metric.text)
    family.add_metric((), buckets, sum_us * US)
    return family


class Exposition:
    """The text of an answer. A registry of its own: nothing that a library registers by itself is shown."""

    def __init__(self) -> None:
        self._collector = NodeCollector()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._collector)

    def text(self, facts: Facts) -> bytes:
        self._collector.facts = facts
        return generate_latest(self._registry)


_PAGE = f"""\
# Metrics

Written from the code (`python -m stoker.node.metrics`); `make check` holds the two together. How to get at them:
[WATCHING.md](WATCHING.md).

- Counters (`_total`) begin at 0 when the node begins. They do not go back when a process of it is killed, nor when a
  mount ends.
- **Reads that the kernel answers from its own page cache are in none of these**: Stoker never hears of them. The same
  holds for files that the kernel reads straight from the cache's disk (`mount.passthrough`).
- The hit ratio is not a metric but a question: `sum(rate(stoker_read_bytes_total{{from="cache"}}[5m])) /
  sum(rate(stoker_read_bytes_total[5m]))`.
- `data_set` is `namespace/name`. The first {MOST_DATA_SETS:,} data sets that a node meets have a value of their
  own, those beyond share `{OTHERS}`. `tier` is the number of the disk in the order of `stoker status`. No label holds a
  path, a key or a bucket.
- Histograms have these buckets, in seconds: {", ".join(f"{bound:g}" for bound in BOUNDS_S)}.

| name | type | unit | labels | what it is |
|---|---|---|---|---|
"""


def page() -> str:
    """docs/METRICS.md."""
    return _PAGE + "".join(map(_row, METRICS))


def _row(metric: Metric) -> str:
    labels = " ".join(f"`{label}`" for label in metric.labels) or "-"
    return f"| `{metric.full_name}` | {metric.kind} | {metric.unit} | {labels} | {metric.text} |\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PATH, page(), sys.argv[1:], "stoker.node.metrics"))
