"""Draws the pictures of docs/layouts.md and docs/trace.md: `python docs/pictures/draw.py`.

A worker is a box; what it holds of the model is coloured, what it works on of the batch stands
below it.
"""

from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent
COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1"]
GREY, LINE, TEXT = "#d9d9d9", "#666666", "#444444"
LAYERS = 4


class Picture:
    """Boxes, bars and words, written as SVG."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" role="img" font-family="sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A coloured stretch."""
        self._lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{colour}"'
            ' stroke="#ffffff"/>'
        )

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """An empty box."""
        self._lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="none"'
            f' stroke="{LINE}" rx="4"/>'
        )

    def words(self, x: float, y: float, text: str, colour: str = TEXT) -> None:
        """A text, centred."""
        self._lines.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{colour}">{escape(text)}</text>'
        )

    def write(self, name: str) -> None:
        """Write the picture beside this file."""
        (FOLDER / f"{name}.svg").write_text("\n".join([*self._lines, "</svg>"]) + "\n")


def workers(
    name: str,
    title: str,
    held: list[list[tuple[int, float, float]]],
    below: list[str],
    between: list[str],
) -> None:
    """Workers side by side: of each layer the stretch (layer, from, to) that they hold."""
    box, gap, height = 110, 60, 16
    picture = Picture(len(held) * (box + gap), 150, title)
    for number, layers in enumerate(held):
        x = gap / 2 + number * (box + gap)
        picture.words(x + box / 2, 16, f"worker {number}")
        picture.frame(x, 24, box, LAYERS * (height + 4) + 12)
        for layer in range(LAYERS):
            picture.bar(x + 8, 32 + layer * (height + 4), box - 16, height, GREY)
        for layer, begin, end in layers:
            y = 32 + layer * (height + 4)
            left, length = x + 8 + begin * (box - 16), (end - begin) * (box - 16)
            picture.bar(left, y, length, height, COLOURS[layer])
        picture.words(x + box / 2, 136, below[number])
        if number:
            picture.words(x - gap / 2, 70, "⇄", LINE)
            picture.words(x - gap / 2, 86, between[number - 1], LINE)
    picture.write(name)


def timeline(name: str, title: str, stages: int, micro_batches: int) -> None:
    """Who computes which micro-batch when, under 1F1B; backward takes twice as long."""
    orders = []
    for stage in range(stages):
        warm_up = min(stages - stage, micro_batches)
        order = [("F", number) for number in range(warm_up)]
        for number in range(micro_batches):
            order.append(("B", number))
            if warm_up + number < micro_batches:
                order.append(("F", warm_up + number))
        orders.append(order)
    ends: dict[tuple[str, int, int], float] = {}
    clock, done = [0.0] * stages, [0] * stages
    drawn = []
    while any(done[stage] < len(orders[stage]) for stage in range(stages)):
        for stage in range(stages):
            if done[stage] == len(orders[stage]):
                continue
            kind, number = orders[stage][done[stage]]
            before = stage - 1 if kind == "F" else stage + 1
            waits = ends.get((kind, before, number)) if 0 <= before < stages else 0.0
            if waits is None:
                continue
            begin = max(clock[stage], waits)
            clock[stage] = begin + (1 if kind == "F" else 2)
            ends[kind, stage, number] = clock[stage]
            drawn.append((stage, kind, number, begin, clock[stage]))
            done[stage] += 1
    unit, height = 20, 24
    picture = Picture(int(90 + max(clock) * unit), 20 + stages * (height + 4), title)
    for stage in range(stages):
        picture.words(38, 26 + stage * (height + 4), f"worker {stage}")
        picture.bar(78, 10 + stage * (height + 4), max(clock) * unit, height, "#f2f2f2")
    for stage, kind, number, begin, end in drawn:
        x, y = 78 + begin * unit, 10 + stage * (height + 4)
        picture.bar(x, y, (end - begin) * unit, height, COLOURS[0 if kind == "F" else 2])
        picture.words(x + (end - begin) * unit / 2, y + 16, str(number + 1), "#ffffff")
    picture.write(name)


def traced() -> None:
    """Two replicas in a step: what is communicated while they compute, and what is not."""
    hidden, exposed = COLOURS[2], COLOURS[1]
    picture = Picture(560, 190, "A step of two workers: computing, and communication beneath")
    computing = [(0.0, 7.0), (11.0, 12.6)], [(0.0, 8.0), (11.0, 12.6)]
    for worker, (computes, begin) in enumerate(zip(computing, (4.0, 5.0), strict=True)):
        top, unit = 14 + worker * 72, 35
        picture.words(42, top + 32, f"worker {worker}")
        for row in (0, 28):
            picture.bar(90, top + row, 12.6 * unit, 24, "#f2f2f2")
        for start, end in computes:
            picture.bar(90 + start * unit, top, (end - start) * unit, 24, COLOURS[0])
        behind = computes[0][1]
        picture.words(90 + behind * unit / 2, top + 16, "forward, backward", "#ffffff")
        picture.words(90 + 11.8 * unit, top + 16, "update", "#ffffff")
        for start, end, colour, word in (
            (begin, behind, hidden, "hidden"),
            (behind, 11.0, exposed, "exposed"),
        ):
            picture.bar(90 + start * unit, top + 28, (end - start) * unit, 24, colour)
            picture.words(90 + (start + end) * unit / 2, top + 44, word, "#ffffff")
    picture.words(300, 174, "time, by the clock of worker 0's node →", LINE)
    picture.write("trace")


def main() -> None:
    """Draw all of them."""
    whole = [(layer, 0.0, 1.0) for layer in range(LAYERS)]
    left = [(layer, 0.0, 0.5) for layer in range(LAYERS)]
    right = [(layer, 0.5, 1.0) for layer in range(LAYERS)]
    halves = ["½ of the batch", "½ of the batch"]
    workers("replicas", "Two replicas", [whole, whole], halves, ["gradients"])
    workers("shards", "Two shards", [left, right], halves, ["weights"])
    workers("tensor", "Two slices", [left, right], ["all of the batch"] * 2, ["values"])
    workers(
        "pipeline",
        "Two stages",
        [whole[:2], whole[2:]],
        ["in micro-batches", "behind it"],
        ["values"],
    )
    workers(
        "mixture",
        "Two stages of two slices",
        [left[:2], right[:2], left[2:], right[2:]],
        ["all of the batch"] * 4,
        ["slices", "stages", "slices"],
    )
    timeline("schedule", "1F1B: four stages, eight micro-batches", 4, 8)
    traced()


if __name__ == "__main__":
    main()
