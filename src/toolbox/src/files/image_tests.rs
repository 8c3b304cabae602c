use image::{Rgb, RgbImage, Rgba, RgbaImage};

use super::*;

/// Bytes that look like noise and are the same every time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

fn file(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn plain(width: u32, height: u32) -> DynamicImage {
    DynamicImage::from(RgbImage::from_fn(width, height, |x, y| Rgb([x.to_le_bytes()[0], y.to_le_bytes()[0], 7])))
}

fn decoded(picture: &Picture) -> DynamicImage {
    let format = ImageFormat::from_mime_type(picture.media_type).unwrap();
    image::load_from_memory_with_format(&picture.bytes, format).unwrap()
}

/// T-READ-3: a picture that fits is sent as it stands, in each of the four formats.
#[test]
fn small_ones_stay_as_they_are() {
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP] {
        let bytes = file(&plain(40, 30), format);
        let picture = fit(bytes.clone(), format).unwrap();
        assert_eq!((picture.media_type, picture.size, picture.scaled_from), (format.to_mime_type(), (40, 30), None));
        assert_eq!(picture.bytes, bytes);
    }
}

/// T-READ-3: no side over 2,000 pixels is sent, the shape stays.
#[test]
fn wide_ones_are_scaled() {
    for (format, sent) in [
        (ImageFormat::Png, ImageFormat::Png),
        (ImageFormat::Jpeg, ImageFormat::Jpeg),
        (ImageFormat::WebP, ImageFormat::Png),
        (ImageFormat::Gif, ImageFormat::Png),
    ] {
        let picture = fit(file(&plain(2_500, 25), format), format).unwrap();
        assert_eq!(picture.media_type, sent.to_mime_type());
        assert_eq!((picture.size, picture.scaled_from), ((2_000, 20), Some((2_500, 25))));
        let shown = decoded(&picture);
        assert_eq!((shown.width(), shown.height()), picture.size);
    }
    let picture = fit(file(&plain(1, 3_000), ImageFormat::Png), ImageFormat::Png).unwrap();
    assert_eq!(picture.size, (1, 2_000));
}

/// T-READ-3: no more than 4.5 MB in base64 are sent: what a PNG cannot do a JPEG does.
#[test]
fn heavy_ones_become_jpeg() {
    let heavy = DynamicImage::from(RgbImage::from_raw(1_080, 1_080, noise(1_080 * 1_080 * 3)).unwrap());
    let bytes = file(&heavy, ImageFormat::Png);
    assert!(bytes.len() > MAX_BYTES);
    let picture = fit(bytes, ImageFormat::Png).unwrap();
    assert_eq!((picture.media_type, picture.size, picture.scaled_from), ("image/jpeg", (1_080, 1_080), None));
    assert!(picture.bytes.len().div_ceil(3) * 4 <= 4_500_000);
    decoded(&picture);
}

/// T-READ-3: a picture of too many pixels is not decoded, whatever its file's size.
#[test]
fn bombs_are_refused() {
    let mut bytes = file(&plain(8, 8), ImageFormat::Png);
    // The header says how large it is, and ends in a checksum of itself.
    bytes[16..20].copy_from_slice(&10_000u32.to_be_bytes());
    bytes[20..24].copy_from_slice(&10_000u32.to_be_bytes());
    let checksum = !bytes[12..29].iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 })
    });
    bytes[29..33].copy_from_slice(&checksum.to_be_bytes());
    let unfit = fit(bytes, ImageFormat::Png).unwrap_err();
    assert_eq!(unfit.to_string(), "10000×10000 pixels are too many to show");
}

/// T-READ-3: a broken picture would be refused by the provider, with the whole conversation.
#[test]
fn broken_ones_are_refused() {
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP] {
        let mut bytes = file(&plain(64, 64), format);
        bytes.truncate(bytes.len() / 3);
        assert!(matches!(fit(bytes, format), Err(Unfit::Broken(_))), "{format:?}");
    }
}

#[test]
fn averages_are_exact() {
    let checks = RgbImage::from_fn(4_000, 8, |x, y| if (x + y) % 2 == 0 { Rgb([255; 3]) } else { Rgb([0; 3]) });
    let DynamicImage::ImageRgb8(small) = shrink(DynamicImage::from(checks), (2_000, 4)) else { panic!("still RGB") };
    assert!(small.pixels().all(|pixel| pixel.0 == [128; 3]));
    // 3 pixels to 2: each takes one whole pixel and half of the one in the middle.
    let three = RgbImage::from_raw(3, 1, vec![0, 0, 0, 90, 90, 90, 240, 240, 240]).unwrap();
    let DynamicImage::ImageRgb8(two) = shrink(DynamicImage::from(three), (2, 1)) else { panic!("still RGB") };
    assert_eq!(two.into_raw(), [30, 30, 30, 190, 190, 190]);
}

#[test]
fn invisible_pixels_have_no_colour() {
    let half = RgbaImage::from_fn(2, 1, |x, _| if x == 0 { Rgba([200, 100, 0, 255]) } else { Rgba([0, 255, 255, 0]) });
    let small = shrink(DynamicImage::from(half), (1, 1));
    assert_eq!(small.as_bytes(), [200, 100, 0, 128]);
    assert_eq!(on_white(&small).into_raw(), [227, 177, 127]);
}
