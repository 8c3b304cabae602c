//! `read`: images and other files that are no text.

use serde_json::json;

use super::read;
use crate::harness::Place;

fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    };
    !bytes.iter().fold(u32::MAX, step)
}

fn adler(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

/// A grey PNG, not compressed.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8; 4], content: &[u8]| {
        let body = [kind, content].concat();
        image.extend(u32::try_from(content.len()).expect("short").to_be_bytes());
        image.extend(&body);
        image.extend(crc(&body).to_be_bytes());
    };
    chunk(b"IHDR", &[&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 0, 0, 0, 0]].concat());
    // Each row begins with its filter: none.
    let row: Vec<u8> = std::iter::once(0).chain((0..width).map(|x| x.to_le_bytes()[0])).collect();
    let pixels = row.repeat(height as usize);
    let mut stream = vec![0x78, 0x01];
    let mut blocks = pixels.chunks(65_535).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).expect("short");
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler(&pixels).to_be_bytes());
    chunk(b"IDAT", &stream);
    chunk(b"IEND", &[]);
    image
}

const GIF: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0!\xf9\x04\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
const WEBP: &[u8] = b"RIFF\x1a\0\0\0WEBPVP8L\r\0\0\0/\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0";

/// T-READ-3, T-9: images are known by their content, come as images, and are scaled down to 2,000 pixels.
#[test]
fn images_come_as_images() {
    for place in Place::on_each_image() {
        let small = png(40, 30);
        place.write("images/small.txt", &small);
        place.write("images/wide", png(5000, 100));
        place.write("images/one.gif", GIF);
        place.write("images/one.webp", WEBP);
        place.write("images/broken.png", &small[..small.len() / 2]);
        let mut desk = place.desk_with("worker", &["--in", "images:/tmp/i"]);

        let image = |answer: &crate::harness::Answer| {
            let encoded = answer.0["image"]["base64"].as_str().expect("an image");
            let media_type = answer.0["image"]["media_type"].as_str().expect("a type").to_owned();
            (media_type, base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded).expect("base64"))
        };
        let answer = read(&mut desk, "/tmp/i/small.txt");
        assert_eq!(answer.ok(), format!("image/png, 40×30 pixels, {} bytes", small.len()));
        assert_eq!(image(&answer), ("image/png".to_owned(), small));
        let answer = read(&mut desk, "/tmp/i/wide");
        let (media_type, bytes) = image(&answer);
        assert_eq!(
            answer.ok(),
            format!("{media_type}, 2000×40 pixels, {} bytes, scaled down from 5000×100", bytes.len())
        );
        for (path, media_type, bytes) in [("/tmp/i/one.gif", "image/gif", GIF), ("/tmp/i/one.webp", "image/webp", WEBP)]
        {
            let answer = read(&mut desk, path);
            assert_eq!(answer.ok(), format!("{media_type}, 1×1 pixels, {} bytes", bytes.len()));
            assert_eq!(image(&answer), (media_type.to_owned(), bytes.to_vec()));
        }
        let broken = read(&mut desk, "/tmp/i/broken.png");
        assert!(broken.ok().starts_with("/tmp/i/broken.png is not text: PNG image ("), "{broken:?}");
        assert!(broken.0.get("image").is_none(), "{broken:?}");
    }
}

/// T-READ-3: other binary files are told by kind and size.
#[test]
fn other_binary_files_are_named() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let make = "cd /tmp; head -c 5000 /bin/sh > program; echo x | gzip > archive; tar -cf tar program; \
                head -c 70000 /dev/urandom > noise; printf '%%PDF-1.4' > paper; head -c 300 /dev/zero > zeros; truncate -s 3G zeros";
        desk.bash(make).ok();
        let tar = desk.bash("stat -c %s /tmp/tar").ok().trim().parse().expect("a size");
        for (name, kind, size) in [
            ("program", "ELF program", 5000),
            ("tar", "tar archive", tar),
            ("noise", "binary data", 70_000),
            ("paper", "PDF document", 8),
            ("zeros", "binary data", 3_221_225_472_u64),
        ] {
            let answer = desk.call("read", &json!({"path": format!("/tmp/{name}")}));
            assert_eq!(answer.ok(), format!("/tmp/{name} is not text: {kind}, {size} bytes"));
        }
        assert!(read(&mut desk, "/tmp/archive").ok().starts_with("/tmp/archive is not text: gzip archive, "));
    }
}
