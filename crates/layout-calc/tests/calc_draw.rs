//! Pictures: what is in the cells, where lines are heavier, and what is refused.

use tilewright_layout::{Coord, Layout, LinearLayout, SwizzledLayout};
use tilewright_layout_calc::draw::{DrawError, Picture};

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

#[test]
fn offsets_stand_at_their_coordinates() {
    let text = Picture::offsets(&layout("((2,2),(2,2)):((1,4),(2,8))")).unwrap().text();
    assert_eq!(
        text,
        "      0   1   2   3\n  +----------------\n0 |   0   2   8  10\n1 |   1   3   9  11\n2 |   4   6  12  14\n\
         3 |   5   7  13  15\n"
    );
    let row = Picture::offsets(&layout("3:-2")).unwrap().text();
    assert!(row.contains("0 |   0  -2  -4"), "{row}");
    let coords: Layout<Coord> = coordinate_layout();
    assert!(Picture::offsets(&coords).unwrap().text().contains("e0+e1"));
}

fn coordinate_layout() -> Layout<Coord> {
    let stride = ["e0", "e1"].map(|e| tilewright_layout::HTuple::Leaf(e.parse::<Coord>().unwrap()));
    Layout::new((2, 2).into(), tilewright_layout::HTuple::Tuple(stride.to_vec())).unwrap()
}

#[test]
fn nested_modes_have_heavier_lines() {
    let svg = Picture::offsets(&layout("((2,4),(2,4)):((1,4),(2,16))")).unwrap().svg();
    assert_eq!(svg.matches("<path ").count(), 3 + 3);
    let svg = Picture::offsets(&layout("(8,8):(1,8)")).unwrap().svg();
    assert_eq!(svg.matches("<path ").count(), 0);
}

#[test]
fn every_thread_has_its_colour() {
    let picture = Picture::thread_values(&layout("((4,8),2):((16,1),8)"), (8, 8)).unwrap();
    let svg = picture.svg();
    let mut colors: Vec<&str> = svg.lines().filter_map(|l| l.split("fill=\"#").nth(1)).collect();
    colors.sort_unstable();
    colors.dedup();
    assert!(colors.len() >= 32, "{} colours", colors.len());
    // Values that several threads hold name the first of them.
    let shared = Picture::thread_values(&layout("(4,2):(0,1)"), (1, 2)).unwrap().text();
    assert!(shared.contains("T0V0+3") && shared.contains("T0V1+3"), "{shared}");
}

#[test]
fn banks_of_a_swizzled_tile() {
    let plain: SwizzledLayout = "(8,64):(64,1)".parse().unwrap();
    let text = Picture::banks(&plain, 16).unwrap().text();
    assert!(text.lines().skip(2).all(|l| l.contains("|   0   0   1   1")), "{text}");
    let swizzled: SwizzledLayout = "Sw<3,3,3> o (8,64):(64,1)".parse().unwrap();
    let picture = Picture::banks(&swizzled, 16).unwrap();
    let first: Vec<String> =
        picture.text().lines().skip(2).map(|l| l.split_whitespace().nth(2).unwrap().to_string()).collect();
    assert_eq!(first, ["0", "4", "8", "12", "16", "20", "24", "28"]);
    // Two halves share a word: one cell for both, with background and frame beside them.
    assert_eq!(picture.svg().matches("<rect ").count(), 8 * 32 + 2);
}

#[test]
fn latex_is_balanced() {
    for picture in [
        Picture::offsets(&layout("(4,8):(8,-1)")).unwrap(),
        Picture::thread_values(&layout("(4,2):(1,4)"), (2, 4)).unwrap(),
    ] {
        let latex = picture.latex();
        assert_eq!(latex.matches('{').count(), latex.matches('}').count(), "{latex}");
        assert_eq!(latex.matches("\\begin").count(), latex.matches("\\end").count());
    }
}

#[test]
fn what_has_no_picture() {
    assert!(matches!(Picture::offsets(&layout("(2,2,2):(1,2,4)")), Err(DrawError::Rank { rank: 3 })));
    assert!(matches!(Picture::offsets(&layout("(1024,1024):(1,1024)")), Err(DrawError::TooLarge { .. })));
    let outside = Picture::thread_values(&layout("(4,2):(1,4)"), (2, 2)).unwrap_err();
    assert_eq!(outside.to_string(), "thread 0, value 1 is at 4, which is not in the tile of 2 × 2");
    assert!(Picture::thread_values(&layout("(4,2):(1,4)"), (i64::MAX, i64::MAX)).is_err());
    assert!(Picture::thread_values(&layout("(4,2):(1,4)"), (0, 4)).is_err());
    assert!(matches!(Picture::banks(&layout("4:1").into(), 0), Err(DrawError::Width { bits: 0 })));
    assert!(Picture::banks(&layout("2:9223372036854775806").into(), 64).is_err());
}

fn linear(text: &str) -> LinearLayout {
    text.parse().unwrap()
}

#[test]
fn linear_layouts_say_who_holds_what() {
    let l = linear("[register: (0,1); lane: (0,2) (1,0); warp: (2,0)] -> [i:4, j:4]");
    let picture = Picture::linear(&l).unwrap();
    assert_eq!(
        picture.text().lines().skip(2).collect::<Vec<_>>(),
        [
            "0 |  W0L0R0  W0L0R1  W0L1R0  W0L1R1",
            "1 |  W0L2R0  W0L2R1  W0L3R0  W0L3R1",
            "2 |  W1L0R0  W1L0R1  W1L1R0  W1L1R1",
            "3 |  W1L2R0  W1L2R1  W1L3R0  W1L3R1",
        ]
    );
    // A colour for each lane: a lane of either warp has the same.
    let svg = picture.svg();
    let cells: Vec<&str> = svg.lines().filter(|l| l.starts_with("<rect x")).collect();
    let mut colors: Vec<&str> =
        cells.iter().filter_map(|l| l.split("fill=\"#").nth(1)).map(|c| &c[..6]).collect();
    colors.sort_unstable();
    colors.dedup();
    assert_eq!(colors.len(), 4);
    let latex = picture.latex();
    assert_eq!(latex.matches('{').count(), latex.matches('}').count());
    assert!(latex.contains("W1L3\\\\R1"));
    // What several hold, and what nobody holds.
    let text = Picture::linear(&linear("[register: 1 0; lane: 0] -> [x:4]")).unwrap().text();
    assert!(text.contains("0 |  L0R0+3  L0R1+3"), "{text}");
    assert_eq!(Picture::linear(&linear("[] -> [x:1]")).unwrap().text().lines().count(), 3);
}

#[test]
fn linear_memory_layouts_have_offsets_and_banks() {
    let l = linear("[offset: (0,1) (0,2) (1,1) (2,2)] -> [i:4, j:4]");
    assert_eq!(
        Picture::linear(&l).unwrap().text().lines().skip(2).collect::<Vec<_>>(),
        ["0 |   0   1   2   3", "1 |   5   4   7   6", "2 |  10  11   8   9", "3 |  15  14  13  12"]
    );
    let banks = Picture::linear_banks(&l, 64).unwrap().text();
    assert!(banks.contains("1 |  10   8  14  12"), "{banks}");
    assert_eq!(Picture::linear_banks(&l, 16).unwrap().svg().matches("<rect ").count(), 8 + 2);
    assert!(matches!(Picture::linear_banks(&l, 0), Err(DrawError::Width { bits: 0 })));
    let registers = linear("[register: 1] -> [x:2]");
    assert!(matches!(Picture::linear_banks(&registers, 16), Err(DrawError::NotMemory)));
}

#[test]
fn what_linear_layouts_have_no_picture() {
    assert!(matches!(Picture::linear(&linear("[] -> []")), Err(DrawError::Rank { rank: 0 })));
    assert!(matches!(Picture::linear(&linear("[] -> [x:1, y:1, z:1]")), Err(DrawError::Rank { rank: 3 })));
    let huge = linear("[] -> [x:2147483648, y:2147483648]");
    assert!(matches!(Picture::linear(&huge), Err(DrawError::TooLarge { .. })));
    let many = LinearLayout::zeros(1 << 62, 1, "lane", "x").unwrap();
    assert!(matches!(Picture::linear(&many), Err(DrawError::TooLarge { .. })));
}

#[test]
fn the_pictures_of_the_documentation_are_what_is_drawn() {
    let threads = Picture::thread_values(&layout("((4,8),2):((16,1),8)"), (8, 8)).unwrap();
    assert_eq!(threads.svg(), include_str!("../../layout/pictures/threads.svg"));
    let c = LinearLayout::mma(tilewright_layout::MmaOperand::C, 2, &[1, 1], &[16, 8]).unwrap();
    assert_eq!(Picture::linear(&c).unwrap().svg(), include_str!("../../layout/pictures/mma.svg"));
}
