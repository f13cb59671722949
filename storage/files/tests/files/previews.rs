//! What is shown of files, whatever is in them.

use std::collections::BTreeSet;
use std::fs::{create_dir, write};

use eirene_files_protocol::{
    Answer, CellKind, Code, Encoding, Extract, OnConflict, Outcome, Part, PartId, Piece, Shown, ToFiles, Verb,
};

use crate::ask::spot;
use crate::bench::{Portal, Way, World, preview, preview_page};

fn shown(portal: &mut Portal, path: &str) -> (Vec<Piece>, Shown) {
    let heard = portal.ask(preview(path.as_bytes()));
    assert_eq!(heard.code(), None, "{path}");
    let pieces = heard.parts.iter().flat_map(|part| match part {
        Part::Preview(pieces) => pieces.clone(),
        other => panic!("{other:?}"),
    });
    let pieces = pieces.collect();
    let Answer::Previewed(previewed) = heard.done() else { panic!("a preview") };
    (pieces, previewed.shown)
}

fn text(pieces: &[Piece]) -> String {
    pieces.iter().map(|piece| if let Piece::Text(text) = piece { text.as_str() } else { "|" }).collect()
}

#[test]
fn a_file_is_shown_as_what_its_content_is() {
    for way in Way::BOTH {
        let world = World::new();
        let long = "\u{1}\u{e9}\u{1f980}\n".repeat(60_000);
        let notebook = format!(
            r##"{{"nbformat": 4, "cells": [{{"cell_type": "markdown", "source": ["# <b>{}"]}}]}}"##,
            "long ".repeat(9_000)
        );
        let files: [(&str, &[u8]); 8] = [
            ("page.html", b"<script>alert(1)</script>"),
            ("long.txt", long.as_bytes()),
            ("latin", b"caf\xe9!"),
            ("table.csv", b"a;b\n\"1;\n\";2\n"),
            ("book.ipynb", notebook.as_bytes()),
            ("no.ipynb", b"{\"cells\": 1}"),
            ("picture", b"GIF89a\x03\x00\x02\x00"),
            ("binary", &[0xAB, 0, 1]),
        ];
        for (name, content) in files {
            write(world.at(name), content).unwrap();
        }
        create_dir(world.at("directory")).unwrap();
        world.hand_over(way);
        let mut portal = world.portal(way);
        let as_text = |encoding, cut| Shown::Text { encoding, cut };
        let (pieces, page) = shown(&mut portal, "page.html");
        assert_eq!((text(&pieces).as_str(), page), ("<script>alert(1)</script>", as_text(Encoding::Utf8, false)));
        let (pieces, page) = shown(&mut portal, "long.txt");
        assert!(long.starts_with(&text(&pieces)) && text(&pieces).len() > 256 * 1024 - 4);
        assert_eq!(page, as_text(Encoding::Utf8, true));
        assert_eq!(shown(&mut portal, "latin").1, as_text(Encoding::Latin1, false));
        let (rows, table) = shown(&mut portal, "table.csv");
        let row = |cells: [&str; 2]| Piece::Row(cells.map(str::to_owned).into());
        assert_eq!((rows, table), (vec![row(["a", "b"]), row(["1;\n", "2"])], Shown::Table { cut: false }));
        let (pieces, book) = shown(&mut portal, "book.ipynb");
        assert_eq!((&pieces[0], book), (&Piece::Cell(CellKind::Markdown), Shown::Notebook { cut: false }));
        assert!(text(&pieces).starts_with("|# <b>long long"));
        assert_eq!(shown(&mut portal, "no.ipynb").1, as_text(Encoding::Utf8, false), "what is none is text");
        let picture = Shown::Picture { media: "image/gif".into(), size: Some((3, 2)) };
        assert_eq!(shown(&mut portal, "picture"), (Vec::new(), picture));
        assert_eq!(shown(&mut portal, "binary"), (Vec::new(), Shown::Bytes { head: "ab0001".into() }));
        assert_eq!(portal.ask(preview(b"directory")).code(), Some(Code::IsADirectory));
    }
}

#[test]
fn a_long_text_is_shown_page_by_page() {
    let world = World::new();
    let long = "\u{e9}\u{1f980}x".repeat(100_001);
    write(world.at("long.txt"), &long).unwrap();
    write(world.at("binary"), vec![0; 600_000]).unwrap();
    write(world.at("picture"), [b"GIF89a\x03\x00\x02\x00".as_slice(), "x".repeat(600_000).as_bytes()].concat())
        .unwrap();
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    let mut paged = String::new();
    for (page, is_cut) in [(0, true), (1, true), (2, false)] {
        let heard = portal.ask(preview_page(b"long.txt", page));
        for part in &heard.parts {
            let Part::Preview(pieces) = part else { panic!("{part:?}") };
            paged.push_str(&text(pieces));
        }
        let Answer::Previewed(previewed) = heard.done() else { panic!("a preview") };
        assert_eq!(previewed.shown, Shown::Text { encoding: Encoding::Utf8, cut: is_cut });
    }
    assert!(paged == long, "all of it, and nothing twice");
    for (name, page) in [("long.txt", 3), ("long.txt", u32::MAX), ("binary", 1), ("picture", 1)] {
        assert_eq!(portal.ask(preview_page(name.as_bytes(), page)).code(), Some(Code::OutOfRange), "{name} {page}");
    }
}

#[test]
fn a_preview_does_not_wait_behind_long_work() {
    let world = World::new();
    write(world.at("text"), "text").unwrap();
    // A tar whose member is a hole of the archive: much to write, and quickly made.
    let head = crate::making::head(b"large", tar::EntryType::Regular, 0o644, 8 << 30, b"");
    write(world.at("a.tar"), head.as_bytes()).unwrap();
    std::fs::OpenOptions::new().write(true).open(world.at("a.tar")).unwrap().set_len(512 + (8 << 30)).unwrap();
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    let work: BTreeSet<_> = (1..4_u8)
        .map(|number| {
            let to = spot(format!("to{number}").as_bytes());
            let id = PartId([number; 16]);
            let extract = Extract { id, from: spot(b"a.tar"), to, on_conflict: OnConflict::Refuse };
            portal.begin(Verb::Extract(extract)).0
        })
        .collect();
    let (number, _) = portal.begin(preview(b"text"));
    let mut said = Vec::new();
    loop {
        let (of, heard) = portal.hear_any();
        assert_eq!(of, number, "the others are still at it: {heard:?}");
        match heard {
            Ok(part) => said.push(part),
            Err(outcome) => {
                assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
                break;
            }
        }
    }
    assert_eq!(said, [Part::Preview(vec![Piece::Text("text".into())])]);
    for number in &work {
        portal.channel.send(&ToFiles::Cancel(*number).encode().unwrap(), None).unwrap();
    }
    let ended: BTreeSet<_> = work.iter().map(|_| portal.hear_any().0).collect();
    assert_eq!(ended, work);
}

#[test]
fn the_widest_rows_and_the_evilest_text_fit_into_frames() {
    let world = World::new();
    let cell = "\u{1}".repeat(400);
    write(world.at("wide.csv"), format!("{}\n", [cell.as_str(); 60].join(",")).repeat(10)).unwrap();
    write(world.at("control.txt"), "\u{1}".repeat(200_000)).unwrap();
    let row = format!("<tr>{}", format!("<td>{}", "\\u0001".repeat(300)).repeat(50));
    let output = format!(r#"{{"data": {{"text/html": "<table>{}</table>"}}}}"#, row.repeat(10));
    let book = format!(r#"{{"cells": [{{"cell_type": "code", "outputs": [{output}]}}]}}"#);
    write(world.at("wide.ipynb"), book).unwrap();
    world.hand_over(Way::Program);
    let mut portal = world.portal(Way::Program);
    let (pieces, book) = shown(&mut portal, "wide.ipynb");
    assert_eq!((pieces.len(), &pieces[1], book), (12, &Piece::Table(0), Shown::Notebook { cut: false }));
    let (rows, table) = shown(&mut portal, "wide.csv");
    assert_eq!((rows.len(), table), (10, Shown::Table { cut: true }));
    assert_eq!(text(&shown(&mut portal, "control.txt").0).len(), 200_000);
}
