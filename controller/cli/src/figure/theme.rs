//! Colours of figures, each with what it becomes on a dark page.
//!
//! Figures are drawn in the light colours; the style sheet below replaces each by its dark one
//! where the reader's system is dark. So one file serves both.

use plotters::style::RGBColor;

/// A colour on a light page and on a dark one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shade {
    pub(crate) light: RGBColor,
    pub(crate) dark: RGBColor,
}

impl Shade {
    const fn new(light: u32, dark: u32) -> Self {
        Self {
            light: rgb(light),
            dark: rgb(dark),
        }
    }

    /// The light colour as style sheets write it.
    pub(crate) fn css(self) -> String {
        hex(self.light)
    }
}

const fn rgb(hex: u32) -> RGBColor {
    RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Text.
pub(crate) const INK: Shade = Shade::new(0x1C_2430, 0xE6_EAF0);
/// Axes and what is less important.
pub(crate) const QUIET: Shade = Shade::new(0x66_7080, 0x9A_A5B4);
/// Lines of the grid.
pub(crate) const GRID: Shade = Shade::new(0xE3_E7EC, 0x2B_333E);

/// Colours that tell things apart; the first is for what matters most.
pub(crate) const SERIES: [Shade; 9] = [
    Shade::new(0x1F_5FD0, 0x6F_A8FF),
    Shade::new(0xD9_6C0B, 0xF2_9B4B),
    Shade::new(0x0E_8F6E, 0x3F_C9A3),
    Shade::new(0xB8_2E8A, 0xE8_7CC3),
    Shade::new(0x7A_8494, 0xA3_AEBD),
    Shade::new(0x8A_6A12, 0xD6_B24A),
    Shade::new(0x5B_47C9, 0xA7_98FF),
    Shade::new(0x23_9AC4, 0x74_D0F1),
    Shade::new(0xA3_3B20, 0xF0_8A6E),
];

/// Colours of classes, the highest first: one hue, from strong to faint.
pub(crate) const CLASSES: [Shade; 8] = [
    Shade::new(0x0B_3C6F, 0xD3_E9FF),
    Shade::new(0x14_558F, 0xB0_D4F9),
    Shade::new(0x24_6FAE, 0x8B_BCED),
    Shade::new(0x3F_8AC6, 0x68_A4DD),
    Shade::new(0x63_A5D8, 0x4A_8AC8),
    Shade::new(0x8B_BFE5, 0x33_71AE),
    Shade::new(0xB1_D5EF, 0x25_5A8F),
    Shade::new(0xD3_E7F6, 0x1B_466F),
];

/// Colours of bands of intensity, the most intense first: another hue.
pub(crate) const BANDS: [Shade; 6] = [
    Shade::new(0x5B_1A5E, 0xF8_D9F4),
    Shade::new(0x7E_3380, 0xE8_B0E2),
    Shade::new(0xA2_559F, 0xCF_86CA),
    Shade::new(0xC0_7FBC, 0xAE_62AB),
    Shade::new(0xDB_AAD6, 0x8A_4589),
    Shade::new(0xEF_D6EC, 0x65_2E66),
];

/// Rules of a style sheet that turn every light colour into its dark one.
pub(crate) fn dark_rules() -> String {
    let rules = all().map(|shade| {
        let (light, dark) = (hex(shade.light), hex(shade.dark));
        format!(
            "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}\
             .chip[data-c=\"{light}\"]{{background:{dark}}}\n"
        )
    });
    rules.collect()
}

/// Every colour that figures use.
fn all() -> impl Iterator<Item = Shade> {
    let text = [INK, QUIET, GRID].into_iter();
    text.chain(SERIES).chain(CLASSES).chain(BANDS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_light_colour_has_one_dark_one() {
        let light: BTreeSet<String> = all().map(Shade::css).collect();
        assert_eq!(light.len(), all().count());
    }
}
