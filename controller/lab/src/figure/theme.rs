//! Colours of figures, each with what it becomes on a dark page.
//!
//! Figures are drawn in the light colours; the style sheet below replaces each by its dark one
//! where the reader's system is dark. So one file serves both.

use plotters::style::RGBColor;

/// A colour on a light page and on a dark one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThemeShade {
    pub(crate) light: RGBColor,
    pub(crate) dark: RGBColor,
}

impl ThemeShade {
    const fn new(light: u32, dark: u32) -> Self {
        Self { light: rgb_colour(light), dark: rgb_colour(dark) }
    }

    /// The light colour as style sheets write it.
    pub(crate) fn css_colour(self) -> String {
        hex_colour(self.light)
    }
}

const fn rgb_colour(hex: u32) -> RGBColor {
    RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

fn hex_colour(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Text.
pub(crate) const INK: ThemeShade = ThemeShade::new(0x1C_2430, 0xE6_EAF0);
/// Axes and what is less important.
pub(crate) const QUIET: ThemeShade = ThemeShade::new(0x66_7080, 0x9A_A5B4);
/// Lines of the grid.
pub(crate) const GRID: ThemeShade = ThemeShade::new(0xE3_E7EC, 0x2B_333E);

/// Distinct colours; the first is for the most important series.
pub(crate) const SERIES: [ThemeShade; 9] = [
    ThemeShade::new(0x1F_5FD0, 0x6F_A8FF),
    ThemeShade::new(0xD9_6C0B, 0xF2_9B4B),
    ThemeShade::new(0x0E_8F6E, 0x3F_C9A3),
    ThemeShade::new(0xB8_2E8A, 0xE8_7CC3),
    ThemeShade::new(0x7A_8494, 0xA3_AEBD),
    ThemeShade::new(0x8A_6A12, 0xD6_B24A),
    ThemeShade::new(0x5B_47C9, 0xA7_98FF),
    ThemeShade::new(0x23_9AC4, 0x74_D0F1),
    ThemeShade::new(0xA3_3B20, 0xF0_8A6E),
];

/// Colours of levels, the highest first: one hue, from strong to faint.
pub(crate) const LEVELS: [ThemeShade; 8] = [
    ThemeShade::new(0x0B_3C6F, 0xD3_E9FF),
    ThemeShade::new(0x14_558F, 0xB0_D4F9),
    ThemeShade::new(0x24_6FAE, 0x8B_BCED),
    ThemeShade::new(0x3F_8AC6, 0x68_A4DD),
    ThemeShade::new(0x63_A5D8, 0x4A_8AC8),
    ThemeShade::new(0x8B_BFE5, 0x33_71AE),
    ThemeShade::new(0xB1_D5EF, 0x25_5A8F),
    ThemeShade::new(0xD3_E7F6, 0x1B_466F),
];

/// Colours of bands of intensity, the most intense first: another hue.
pub(crate) const BANDS: [ThemeShade; 6] = [
    ThemeShade::new(0x5B_1A5E, 0xF8_D9F4),
    ThemeShade::new(0x7E_3380, 0xE8_B0E2),
    ThemeShade::new(0xA2_559F, 0xCF_86CA),
    ThemeShade::new(0xC0_7FBC, 0xAE_62AB),
    ThemeShade::new(0xDB_AAD6, 0x8A_4589),
    ThemeShade::new(0xEF_D6EC, 0x65_2E66),
];

/// Rules of a style sheet that turn every light colour into its dark one.
pub(crate) fn dark_rules() -> String {
    let rules = all_shades().map(|shade| {
        let (light, dark) = (hex_colour(shade.light), hex_colour(shade.dark));
        format!(
            "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}\
             .chip[data-c=\"{light}\"]{{background:{dark}}}\n"
        )
    });
    rules.collect()
}

/// Every colour that figures use.
fn all_shades() -> impl Iterator<Item = ThemeShade> {
    let text = [INK, QUIET, GRID].into_iter();
    text.chain(SERIES).chain(LEVELS).chain(BANDS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_light_colour_has_one_dark_one() {
        let light: BTreeSet<String> = all_shades().map(ThemeShade::css_colour).collect();
        assert_eq!(light.len(), all_shades().count());
    }
}
