"""Results of pipelines get the tags of all tables, at exactly their positions or not at all."""

from dataclasses import replace

from replicator.model.commit_marker import MARKER_KEY, CommitMarker
from replicator.model.tags import TagState
from replicator.operations.status.read import read_status
from replicator.operations.tag.request import list_tags
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import ends_reader
from replicator.pipelines.refresh.refresh import Refreshed
from replicator.pipelines.tag_stops import TagStops
from replicator.runner.pipelines import refresh_to_tags
from tests.spark.test_tags import BILLS, ID, end, ids, tag_names, tagged
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, created
from tests.support.pipeline_lake import PipelineLake
from tests.support.scenario import other_table, row_of
from tests.support.tagged_lake import GivenPositions, recorded, request, store_of, with_positions

JOINED = "shop_pipelines.joined"


def _set_mirror(lake: LakeHarness, result: str, mirror: str) -> None:
    with lake.catalog() as catalog:
        table = catalog.load_table(("shop_pipelines", result))
        marker = replace(CommitMarker.from_json(table.properties[MARKER_KEY]), mirror=mirror)
        with table.transaction() as change:
            change.set_properties({MARKER_KEY: marker.properties()[MARKER_KEY] or ""})


def test_results_stop_at_the_position_of_a_tag_and_get_it(lake: LakeHarness) -> None:
    positions = GivenPositions(end(300), end(300))
    with_positions(lake, positions)
    lake.write([DEFINITION, other_table("bills", "CREATE", 10, columns=[ID])])
    lake.write(
        [created(110), row_of("bills", 220, id=110), created(250), row_of("bills", 370, id=2), created(280)]
    )
    mirror, pipelines, stops = lake.mirror(), PipelineLake(lake), TagStops()
    mirror.advance({ORDERS: {0: 1}, BILLS: {0: 1}})
    pipelines.define(
        "joined", "SELECT o.id, b.id AS bill FROM shop.orders o LEFT JOIN shop.bills b ON o.id = b.id"
    )
    pipelines.define("counted", f"-- refresh: auto\nSELECT 1 AS id, count(*) AS rows FROM {JOINED}")
    opened = pipelines.pipelines()
    # Until tables have passed the position, nothing is known of it.
    ends = ends_reader(pipelines.config)()
    early = replace(ends, boundary=Boundary("mysql-bin.000001", 250), ends={})
    assert stops.limited(opened, early) == early
    assert all(isinstance(result, Refreshed) for result in opened.refresh(early))
    # The position is after what results have; they stay there until the tag is complete.
    positions.confirmed_end = None
    request(mirror, "noon")
    mirror.advance({ORDERS: {0: 3}, BILLS: {0: 1}})
    assert recorded(mirror, "noon").state is TagState.STARTED
    assert stops.limited(opened, early) == early
    held = stops.limited(opened, ends)
    assert (str(held.boundary), held.tag) == ("mysql-bin.000001:300", None)
    # A result that is another mirror's does not keep the others from stopping.
    _set_mirror(lake, "counted", "another")
    assert stops.limited(opened, ends) == held
    _set_mirror(lake, "counted", opened.config.mirror.name)
    positions.confirmed_end = end(300)
    mirror.tags.poll_now()
    mirror.advance({ORDERS: {0: 3}, BILLS: {0: 2}})
    assert recorded(mirror, "noon").state is TagState.COMPLETE
    assert list_tags(pipelines.config)[0].without == ("shop_pipelines.counted", JOINED)
    read = ends_reader(pipelines.config)
    found = refresh_to_tags(pipelines.pipelines(), read, TagStops(), 60, None)
    assert [str(result.boundary) for result in found if isinstance(result, Refreshed)] == [
        str(held.boundary)
    ] * 2
    pipelines.refreshed()
    # The tag is at the position, and the results are further.
    assert ids(lake, "orders") == ids(lake, "joined", namespace="shop_pipelines") == [110]
    assert tagged(lake, "joined", namespace="shop_pipelines") == [{"id": 110, "bill": 110}]
    assert tagged(lake, "counted", namespace="shop_pipelines") == [{"id": 1, "rows": 1}]
    assert pipelines.rows("counted") == {(1, 3): 1}
    (shown,) = list_tags(pipelines.config)
    assert (shown.results, shown.without) == (("shop_pipelines.counted", JOINED), ())
    assert read_status(pipelines.config).tags == (shown,)
    assert stops.limited(opened, ends) == ends
    # A position that results have passed is in none.
    point = recorded(mirror, "noon").point
    assert point is not None
    store_of(mirror).write(replace(recorded(mirror, "noon"), name="late", point=replace(point, pos=290)))
    assert refresh_to_tags(pipelines.pipelines(), read, TagStops(), 60, None) == []
    lacking = {tag.name: tag.without for tag in list_tags(pipelines.config)}
    assert lacking == {"late": ("shop_pipelines.counted", JOINED), "noon": ()}
    # Deleted tags are deleted in results too.
    store_of(mirror).write(replace(recorded(mirror, "noon"), state=TagState.DELETING))
    mirror.tags.poll_now()
    mirror.tags.tend()
    assert tag_names(lake, "shop_pipelines", "joined") == tag_names(lake, "shop", "orders") == []
