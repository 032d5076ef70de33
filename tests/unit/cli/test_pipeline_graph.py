"""The graph of pipelines as text, picture and page."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from replicator.cli.pipeline_graph import graph_text, write_graph
from replicator.errors import UsageError
from replicator.pipelines.status import Explained, PipelineStatus

_SVG = "{http://www.w3.org/2000/svg}"


def explained(name: str, *reads: str, rows: int | None = None, problem: str | None = None) -> Explained:
    file, table = f"pipelines/{name}.sql", f"shop_pipelines.{name}"
    status = PipelineStatus(name, file, "", "current", table, "signed", reads, rows=rows, problem=problem)
    return Explained(status, ("kept current by: signed",), ((f"{name}__net", "SELECT a < 1"),), "SELECT 1")


FOUND = [
    explained("clean", "shop.orders", rows=7),
    explained("revenue", "shop_pipelines.clean", "shop.customers"),
    explained("top", "shop_pipelines.revenue", problem="no column <b> in it"),
]


def test_text_has_what_it_reads_and_what_reads_it() -> None:
    console = Console(width=200, force_terminal=False)
    with console.capture() as text:
        for tree in graph_text(FOUND, "revenue"):
            console.print(tree)
    assert text.get().splitlines() == [
        "shop_pipelines.revenue is computed of",
        "├── shop_pipelines.clean (signed, current, 7 rows)",
        "│   └── shop.orders",
        "└── shop.customers",
        "shop_pipelines.revenue is read by",
        "└── shop_pipelines.top (signed, current)",
    ]


def test_picture_has_a_box_for_each_table_right_of_what_it_reads(tmp_path: Path) -> None:
    file = tmp_path / "graph.svg"
    write_graph(file, FOUND, "revenue")
    root = ET.fromstring(file.read_text())
    boxes = {}
    for group in root.iter(f"{_SVG}g"):
        rect = group.find(f"{_SVG}rect")
        assert rect is not None
        boxes[group.findtext(f"{_SVG}text")] = (int(rect.attrib["x"]), int(rect.attrib["y"]))
    assert set(boxes) == {
        "shop.orders",
        "shop.customers",
        *(f"shop_pipelines.{n}" for n in ("clean", "revenue", "top")),
    }
    assert len(set(boxes.values())) == len(boxes)
    x = {name: place[0] for name, place in boxes.items()}
    assert (
        x["shop.orders"] < x["shop_pipelines.clean"] < x["shop_pipelines.revenue"] < x["shop_pipelines.top"]
    )
    arrows = [path for path in root.iter(f"{_SVG}path") if "marker-end" in path.attrib]
    assert len(arrows) == 4


def test_page_has_the_queries_and_nothing_unescaped(tmp_path: Path) -> None:
    file = tmp_path / "graph.html"
    write_graph(file, FOUND, "revenue")
    text = file.read_text()
    assert "SELECT a &lt; 1" in text
    assert "no column &lt;b&gt; in it" in text
    assert "<script" not in text


def test_other_endings_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no \.svg"):
        write_graph(tmp_path / "graph.png", FOUND, "revenue")
    with pytest.raises(UsageError, match="cannot be written"):
        write_graph(tmp_path / "none" / "graph.svg", FOUND, "revenue")
