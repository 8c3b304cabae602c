//! Pictures for models: checked, and scaled down when they are too large (T-READ-3).
//!
//! Decoding happens only here, in a file server of its own: never in PID 1, in the resident worker or on the host (T-9).

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{DynamicImage, ImageDecoder, ImageEncoder as _, ImageError, ImageFormat, ImageReader, Limits};

/// Longest side in pixels that is sent; providers take no more when a conversation holds many images.
const MAX_SIDE: u32 = 2_000;

/// Most bytes that are sent: 4.5 MB in base64, as providers count them.
const MAX_BYTES: usize = 4_500_000 / 4 * 3;

/// Largest file that is decoded.
pub(super) const MAX_FILE: u64 = 32 * 1024 * 1024;

/// Most pixels that are decoded.
const MAX_PIXELS: u64 = 50_000_000;

/// Most bytes of decoded pixels.
const MAX_DECODED: u64 = 200 * 1024 * 1024;

/// Qualities tried, one after the other, before a picture is made smaller.
const QUALITIES: [u8; 3] = [85, 70, 50];

/// A picture as it is sent.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) media_type: &'static str,
    pub(super) size: (u32, u32),
    pub(super) scaled_from: Option<(u32, u32)>,
    pub(super) bytes: Vec<u8>,
}

/// Why a file that begins like a picture cannot be shown as one, as words to follow its format.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("{0}×{1} pixels are too many to show")]
    TooLarge(u32, u32),
    #[error("broken: {0}")]
    Broken(#[from] ImageError),
}

/// The common name of a format.
pub(super) fn name(format: ImageFormat) -> &'static str {
    match format {
        ImageFormat::Png => "PNG image",
        ImageFormat::Jpeg => "JPEG image",
        ImageFormat::Gif => "GIF image",
        _ => "WebP image",
    }
}

/// Checks that `file` decodes and makes it fit. One that fits is sent as it stands; another becomes a PNG, or a JPEG
/// where it was one or a PNG is too large. Of an animation that does not fit only the first picture is sent.
pub(super) fn fit(file: Vec<u8>, format: ImageFormat) -> Result<Picture, Unfit> {
    let mut reader = ImageReader::with_format(Cursor::new(file.as_slice()), format);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MAX_PIXELS || decoder.total_bytes() > MAX_DECODED {
        return Err(Unfit::TooLarge(width, height));
    }
    let orientation = decoder.orientation()?;
    let picture = DynamicImage::from_decoder(decoder)?;
    if width.max(height) <= MAX_SIDE && file.len() <= MAX_BYTES {
        let media_type = format.to_mime_type();
        return Ok(Picture { media_type, size: (width, height), scaled_from: None, bytes: file });
    }
    drop(file);
    let eight_bits = if picture.color().has_alpha() {
        DynamicImage::from(picture.into_rgba8())
    } else {
        DynamicImage::from(picture.into_rgb8())
    };
    let mut picture = shrink(eight_bits, within(width, height, MAX_SIDE));
    // A re-encoded file has no EXIF data any more that would say which side is up.
    picture.apply_orientation(orientation);
    let (media_type, bytes) = encode(&mut picture, format)?;
    let size = (picture.width(), picture.height());
    let scaled = size != (width, height) && size != (height, width);
    Ok(Picture { media_type, size, scaled_from: scaled.then_some((width, height)), bytes })
}

/// Encodes a picture, making it smaller until it fits.
fn encode(picture: &mut DynamicImage, format: ImageFormat) -> Result<(&'static str, Vec<u8>), ImageError> {
    loop {
        if format != ImageFormat::Jpeg {
            let mut bytes = Vec::new();
            PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive).write_image(
                picture.as_bytes(),
                picture.width(),
                picture.height(),
                picture.color().into(),
            )?;
            if bytes.len() <= MAX_BYTES {
                return Ok((ImageFormat::Png.to_mime_type(), bytes));
            }
        }
        let opaque = on_white(picture);
        for quality in QUALITIES {
            let mut bytes = Vec::new();
            JpegEncoder::new_with_quality(&mut bytes, quality).encode_image(&opaque)?;
            if bytes.len() <= MAX_BYTES {
                return Ok((ImageFormat::Jpeg.to_mime_type(), bytes));
            }
        }
        let smaller = within(picture.width(), picture.height(), picture.width().max(picture.height()) / 4 * 3);
        *picture = shrink(std::mem::take(picture), smaller);
    }
}

/// The picture without transparency, which JPEG has none of.
fn on_white(picture: &DynamicImage) -> image::RgbImage {
    let mut opaque = image::RgbImage::new(picture.width(), picture.height());
    match picture {
        DynamicImage::ImageRgba8(pixels) => {
            for (to, from) in opaque.pixels_mut().zip(pixels.pixels()) {
                let alpha = u32::from(from.0[3]);
                for (to, from) in to.0.iter_mut().zip(from.0) {
                    *to = u8::try_from((u32::from(from) * alpha + 255 * (255 - alpha)) / 255).unwrap_or(u8::MAX);
                }
            }
        }
        other => opaque = other.to_rgb8(),
    }
    opaque
}

/// The largest size of the same shape with no side over `side`.
fn within(width: u32, height: u32, side: u32) -> (u32, u32) {
    let longest = width.max(height);
    if longest <= side {
        return (width, height);
    }
    let scale = |length: u32| {
        let scaled = (u64::from(length) * u64::from(side) + u64::from(longest) / 2) / u64::from(longest);
        u32::try_from(scaled).unwrap_or(side).max(1)
    };
    (scale(width), scale(height))
}

/// Scales a picture of 8-bit RGB or RGBA down by averaging areas: exact, and in the memory of one row.
fn shrink(picture: DynamicImage, (width, height): (u32, u32)) -> DynamicImage {
    let from = (picture.width() as usize, picture.height() as usize);
    let to = (width as usize, height as usize);
    if from == to {
        return picture;
    }
    let scaled = match &picture {
        DynamicImage::ImageRgba8(pixels) => {
            image::RgbaImage::from_raw(width, height, average::<4>(pixels.as_raw(), from, to)).map(DynamicImage::from)
        }
        DynamicImage::ImageRgb8(pixels) => {
            image::RgbImage::from_raw(width, height, average::<3>(pixels.as_raw(), from, to)).map(DynamicImage::from)
        }
        _ => None,
    };
    scaled.unwrap_or(picture)
}

/// Averages areas of an image of `N` channels, row by row. With four channels, colours count by their alpha, so that the
/// colour of invisible pixels does not bleed into visible ones.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths are below 2^26 and colours are rounded into 0..=255"
)]
fn average<const N: usize>(pixels: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    let steps = (from.0 as f32 / to.0 as f32, from.1 as f32 / to.1 as f32);
    let mut result = Vec::with_capacity(to.0 * to.1 * N);
    let mut sums = vec![[0f32; N]; to.0];
    for y in 0..to.1 {
        sums.fill([0.0; N]);
        for (row, share) in cover(y, steps.1, from.1) {
            let row = &pixels[row * from.0 * N..(row + 1) * from.0 * N];
            for (x, sum) in sums.iter_mut().enumerate() {
                for (column, part) in cover(x, steps.0, from.0) {
                    let pixel = &row[column * N..(column + 1) * N];
                    let weight = share * part;
                    let colour = if N == 4 { weight * f32::from(pixel[3]) / 255.0 } else { weight };
                    for (channel, sum) in sum.iter_mut().enumerate() {
                        *sum += f32::from(pixel[channel]) * if channel == 3 { weight } else { colour };
                    }
                }
            }
        }
        let area = steps.0 * steps.1;
        for sum in &sums {
            let colour = if N == 4 { (sum[3] / 255.0).max(f32::MIN_POSITIVE) } else { area };
            let value = |channel: usize| sum[channel] / if channel == 3 { area } else { colour };
            result.extend((0..N).map(|channel| value(channel).round().clamp(0.0, 255.0) as u8));
        }
    }
    result
}

/// The source positions that target position `at` covers, each with the part of it that is covered.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as above")]
fn cover(at: usize, step: f32, length: usize) -> impl Iterator<Item = (usize, f32)> {
    let begin = at as f32 * step;
    let end = (begin + step).min(length as f32);
    (begin as usize..(end.ceil() as usize).min(length)).map(move |position| {
        let left = (position as f32).max(begin);
        (position, (((position + 1) as f32).min(end) - left).max(0.0))
    })
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
