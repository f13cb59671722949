//! What is written as the protocol has it is understood, and nothing else is.

use proptest::prelude::*;

use super::*;

fn headers(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| ((*name).clone(), HeaderValue::from_str(value).unwrap())).collect()
}

/// Status and the field that is named.
fn refusal<T>(result: HttpResult<T>) -> (u16, String) {
    let Err(error) = result else { panic!("it was taken") };
    let problem = error.problem();
    (problem.status, problem.errors.first().map(|error| error.field.clone()).unwrap_or_default())
}

fn metadata(pairs: &[(&str, &[u8])]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key} {}", BASE64.encode(value))).collect();
    pairs.join(",")
}

fn creation(pairs: &[(&HeaderName, &str)]) -> HttpResult<Creation> {
    Creation::parse(&headers(pairs), 1000)
}

#[test]
fn a_wish_is_understood() {
    let sum = "ab".repeat(32);
    let pairs: [(&str, &[u8]); 6] = [
        ("path", b"runs/\xff\n<b>.bin"),
        ("sha256", sum.as_bytes()),
        ("modified", b"1969-12-31T23:59:59.25Z"),
        ("on_conflict", b"keep_both"),
        ("parents", b"true"),
        ("filetype", b"text/html"),
    ];
    let metadata = metadata(&pairs);
    let wish = creation(&[(&LENGTH, "7"), (&METADATA, &metadata)]).unwrap();
    let expected = Metadata {
        path: RelativePath::parse(b"runs/\xff\n<b>.bin").unwrap(),
        sha256: Some(Digest([0xab; 32])),
        modified: Some(Moment { seconds: -1, nanoseconds: 250_000_000 }),
        on_conflict: OnConflict::KeepBoth,
        parents: true,
    };
    assert_eq!(wish, Creation { length: 7, metadata: expected, first: None });

    let sums = [
        (format!("crc32 {}", BASE64.encode(&[7; 4])), Checksum::Crc32(Digest([7; 4]))),
        (format!("sha1 {}", BASE64.encode(&[7; 20])), Checksum::Sha1(Digest([7; 20]))),
        (format!("sha256 {}", BASE64.encode(&[7; 32])), Checksum::Sha256(Digest([7; 32]))),
    ];
    let with = [(&LENGTH, "7"), (&METADATA, "path YQ=="), (&header::CONTENT_TYPE, CHUNK_TYPE)];
    let mut with = headers(&with);
    with.insert(header::CONTENT_LENGTH, HeaderValue::from_static("3"));
    for (text, checksum) in sums {
        with.insert(CHECKSUM, text.parse().unwrap());
        let first = Chunk { offset: 0, bytes: Some(3), checksum: Some(checksum) };
        assert_eq!(Creation::parse(&with, 1000).unwrap().first, Some(first), "{text}");
    }
}

#[test]
fn a_wish_that_is_not_one_is_refused_by_the_header_or_the_key_at_fault() {
    let good = "path YQ==";
    for (pairs, expected) in [
        (vec![(&METADATA, good)], (400, "upload-length")),
        (vec![(&LENGTH, "1")], (400, "upload-metadata")),
        (vec![(&LENGTH, "1001"), (&METADATA, good)], (413, "")),
        (vec![(&LENGTH, "-1"), (&METADATA, good)], (400, "upload-length")),
        (vec![(&LENGTH, "+1"), (&METADATA, good)], (400, "upload-length")),
        (vec![(&LENGTH, "9223372036854775808"), (&METADATA, good)], (400, "upload-length")),
        (vec![(&LENGTH, "1"), (&LENGTH, "1"), (&METADATA, good)], (400, "upload-length")),
        (vec![(&DEFER_LENGTH, "1"), (&METADATA, good)], (400, "upload-defer-length")),
        (vec![(&LENGTH, "1"), (&CONCAT, "partial"), (&METADATA, good)], (400, "upload-concat")),
        (vec![(&LENGTH, "1"), (&METADATA, good), (&header::CONTENT_LENGTH, "1")], (415, "")),
        (vec![(&LENGTH, "1"), (&METADATA, good), (&header::TRANSFER_ENCODING, "chunked")], (415, "")),
        (
            vec![
                (&LENGTH, "1"),
                (&METADATA, good),
                (&header::CONTENT_TYPE, CHUNK_TYPE),
                (&header::CONTENT_LENGTH, "2"),
            ],
            (413, ""),
        ),
    ] {
        let (status, field) = refusal(creation(&pairs));
        assert_eq!((status, field.as_str()), expected, "{pairs:?}");
    }
    for (text, expected) in [
        ("", (400, "upload-metadata")),
        ("path YQ==,", (400, "upload-metadata")),
        ("path YQ==,path YQ==", (400, "upload-metadata")),
        ("path YQ", (400, "upload-metadata")),
        ("path  YQ==", (400, "upload-metadata")),
        ("path YQ==,on-conflict cmVmdXNl", (422, "upload-metadata")),
        ("filename YQ==", (422, "path")),
    ] {
        let (status, field) = refusal(Metadata::parse(text.as_bytes()));
        assert_eq!((status, field.as_str()), expected, "{text}");
    }
    for (key, value) in [
        ("path", ""),
        ("path", "/etc/passwd"),
        ("path", "a/../b"),
        ("path", "a\0b"),
        ("sha256", "00"),
        ("modified", "yesterday"),
        ("on_conflict", "overwrite"),
        ("parents", "yes"),
    ] {
        let text = match key {
            "path" => metadata(&[(key, value.as_bytes())]),
            _ => metadata(&[("path", b"a"), (key, value.as_bytes())]),
        };
        assert_eq!(refusal(Metadata::parse(text.as_bytes())), (422, key.to_owned()), "{value}");
    }
}

#[test]
fn a_chunk_is_announced_by_its_type_and_where_it_begins() {
    let kind = (&header::CONTENT_TYPE, CHUNK_TYPE);
    let sum = format!("sha256 {}", BASE64.encode(&[9; 32]));
    let chunk = Chunk::parse(&headers(&[kind, (&OFFSET, "070"), (&CHECKSUM, &sum)])).unwrap();
    assert_eq!(chunk, Chunk { offset: 70, bytes: None, checksum: Some(Checksum::Sha256(Digest([9; 32]))) });
    for (pairs, expected) in [
        (vec![(&OFFSET, "0")], (415, "")),
        (vec![(&header::CONTENT_TYPE, "application/octet-stream"), (&OFFSET, "0")], (415, "")),
        (vec![kind], (400, "upload-offset")),
        (vec![kind, (&OFFSET, "0x10")], (400, "upload-offset")),
        (vec![kind, (&OFFSET, "0"), (&OFFSET, "5")], (400, "upload-offset")),
        (vec![kind, (&OFFSET, "0"), (&CHECKSUM, "md5 AAAA")], (400, "upload-checksum")),
        (vec![kind, (&OFFSET, "0"), (&CHECKSUM, "sha1 AAAA")], (400, "upload-checksum")),
        (vec![kind, (&OFFSET, "0"), (&CHECKSUM, "sha1")], (400, "upload-checksum")),
        (vec![kind, (&OFFSET, "0"), (&CHECKSUM, "crc32 AAAAAAA=")], (400, "upload-checksum")),
    ] {
        let (status, field) = refusal(Chunk::parse(&headers(&pairs)));
        assert_eq!((status, field.as_str()), expected, "{pairs:?}");
    }
}

#[tokio::test]
async fn another_version_is_not_spoken() {
    let of = async |pairs: &[(&HeaderName, &str)]| {
        let mut request = http::Request::new(());
        *request.headers_mut() = headers(pairs);
        Speaks::from_request_parts(&mut request.into_parts().0, &()).await.map(|Speaks| ())
    };
    assert!(of(&[(&RESUMABLE, "1.0.0")]).await.is_ok());
    for other in ["0.2.2", "1.0.0 ", "1.0", ""] {
        assert_eq!(refusal(of(&[(&RESUMABLE, other)]).await).0, 412, "{other:?}");
    }
    assert_eq!(refusal(of(&[]).await).0, 412);
    assert_eq!(refusal(of(&[(&RESUMABLE, "1.0.0"), (&RESUMABLE, "1.0.0")]).await).0, 400);
}

#[test]
fn answers_are_written_as_the_protocol_has_them() {
    let mut said = HeaderMap::new();
    offer(&mut said, 1 << 40);
    assert_eq!(
        (said["tus-version"].as_bytes(), said["tus-max-size"].as_bytes()),
        (&b"1.0.0"[..], &b"1099511627776"[..])
    );
    assert!(said["tus-extension"].to_str().unwrap().contains("creation-with-upload"));
    assert_eq!(said["tus-checksum-algorithm"], "crc32,sha256,sha1");
    let path = RelativePath::parse("a b/ü\r\nSet-Cookie: x".as_bytes()).unwrap();
    let expires = Some("2026-01-02T03:04:05.9Z".parse().unwrap());
    Standing { offset: 5, expires, path: Some(&path) }.put(&mut said);
    assert_eq!(
        (said["upload-offset"].as_bytes(), said["upload-expires"].as_bytes()),
        (&b"5"[..], &b"Fri, 02 Jan 2026 03:04:05 GMT"[..])
    );
    assert_eq!(said["eirene-path"], "a%20b/%C3%BC%0D%0ASet-Cookie%3A%20x");
}

/// Any path that there can be.
fn paths() -> impl Strategy<Value = RelativePath> {
    let parts = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 1..5);
    parts.prop_filter_map("no path", |parts| RelativePath::parse(&parts.join(&b'/')).ok())
}

proptest! {
    #[test]
    fn nothing_that_is_sent_is_too_strange_to_be_judged(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        text in "[a-z0-9_ ,=]{0,80}",
        which in 0_usize..7,
    ) {
        let _ = Metadata::parse(&bytes);
        let _ = Metadata::parse(text.as_bytes());
        let names = [&LENGTH, &OFFSET, &CHECKSUM, &METADATA, &RESUMABLE, &header::CONTENT_LENGTH, &header::CONTENT_TYPE];
        let mut all = headers(&[(&header::CONTENT_TYPE, CHUNK_TYPE), (&OFFSET, "1"), (&LENGTH, "9"), (&METADATA, "path YQ==")]);
        for value in [HeaderValue::from_bytes(&bytes), HeaderValue::from_bytes(text.as_bytes())].into_iter().flatten() {
            all.insert(names[which].clone(), value);
            let _ = Chunk::parse(&all);
            if let Ok(wish) = Creation::parse(&all, 1000) {
                prop_assert!(wish.length <= 1000 && wish.first.is_none_or(|first| first.bytes.unwrap_or(0) <= wish.length));
            }
        }
    }

    #[test]
    fn no_path_that_is_taken_leads_out(bytes in proptest::collection::vec(prop_oneof![Just(b'.'), Just(b'/'), any::<u8>()], 0..40)) {
        let text = metadata(&[("path", &bytes)]);
        if let Ok(parsed) = Metadata::parse(text.as_bytes()) {
            prop_assert_eq!(parsed.path.as_bytes(), &bytes[..]);
            prop_assert!(bytes.split(|byte| *byte == b'/').all(|part| !part.is_empty() && part != b"." && part != b".."));
        }
    }

    #[test]
    fn what_is_told_of_an_upload_is_what_was_wished(path in paths(), sum in any::<Option<[u8; 32]>>(), which in 0_usize..3) {
        let on_conflict = OnConflict::ALL[which];
        let sha256 = sum.map(|sum| HEXLOWER.encode(&sum));
        let written = Metadata::written(&path, sha256.as_deref(), on_conflict);
        let read = Metadata::parse(written.as_bytes()).unwrap();
        prop_assert_eq!(read, Metadata { path, sha256: sum.map(Digest), modified: None, on_conflict, parents: false });
    }

    #[test]
    fn any_path_goes_into_a_header_and_comes_back(path in paths()) {
        let mut said = HeaderMap::new();
        Standing { offset: 0, expires: None, path: Some(&path) }.put(&mut said);
        let text = said["eirene-path"].as_bytes();
        prop_assert!(text.iter().all(u8::is_ascii_graphic));
        let mut back = Vec::new();
        let mut rest = text;
        while let [first, tail @ ..] = rest {
            if *first == b'%' {
                back.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
                rest = &tail[2..];
            } else {
                back.push(*first);
                rest = tail;
            }
        }
        prop_assert_eq!(back, path.as_bytes());
    }
}
