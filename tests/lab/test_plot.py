import xml.etree.ElementTree as ET

from hawser.lab.plot import Band, Line, Plot

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plot: Plot) -> ET.Element:
    return ET.fromstring(plot.svg())


def points(sheet: ET.Element) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (each.split(",") for each in line.attrib["points"].split())]
        for line in sheet.iter(f"{SVG}polyline")
    ]


def test_higher_values_stand_higher_and_later_ones_further_right():
    [line] = points(drawn(Plot(title="t", x="s", lines=[Line("a", [(0, 1), (1, 2), (2, 4)])])))
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert [y for _, y in line] == sorted((y for _, y in line), reverse=True)


def test_a_line_with_an_axis_of_its_own_is_not_pressed_to_the_floor_by_the_other():
    left, right = points(drawn(Plot(title="t", x="s", lines=[Line("a", [(0, 9000)]), Line("b", [(0, 9)], right=True)])))
    assert left == right


def test_what_people_wrote_cannot_break_the_sheet():
    plot = Plot(title="<b>&", x="'\"<", lines=[Line("</svg>", [(0, 0)])], bands=[Band(0, 1, "<i>")], marks=[0.5])
    texts = [each.text for each in drawn(plot).iter(f"{SVG}text")]
    assert {"<b>&", "'\"<", "</svg>", "<i>"} <= set(texts)


def test_nothing_measured_is_an_empty_sheet_and_no_error():
    drawn(Plot(title="t", x="s", lines=[Line("a", [])]))


def test_the_figures_below_a_line_are_round():
    sheet = drawn(Plot(title="t", x="s", lines=[Line("a", [(1.7e-07, 1), (5.52, 2)])]))
    texts = [each.text for each in sheet.iter(f"{SVG}text")]
    assert {"1", "2", "3", "4", "5"} <= set(texts)
    assert not [text for text in texts if text is not None and "e-" in text]


def test_a_logarithmic_axis_gives_each_doubling_the_same_room():
    [line] = points(drawn(Plot(title="t", x="s", log_x=True, lines=[Line("a", [(1, 1), (2, 1), (4, 1)])])))
    first, second, third = (x for x, _ in line)
    assert abs((second - first) - (third - second)) < 0.2
