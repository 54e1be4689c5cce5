//! Quotas of tenants as the command line has them: `a=4x64+2x8` is four cells of 64 GPUs and two of
//! 8 for tenant a.

use std::collections::BTreeMap;

use placement::PlacementAlgorithm;
use placement::hived::CellQuota;

use command_io::CommandError;

pub(super) fn parse_quota(text: &str) -> Result<(String, CellQuota), String> {
    let expected = || format!("`{text}` is no quota: write TENANT=NUMBERxGPUS, such as a=4x64+2x8");
    let (tenant, cells) = text.split_once('=').ok_or_else(expected)?;
    let cell = |cell: &str| {
        let (number, gpus) = cell.split_once('x')?;
        let (number, gpus): (u32, u32) = (number.parse().ok()?, gpus.parse().ok()?);
        (number > 0 && gpus > 0).then_some((gpus, number))
    };
    let cells = cells.split('+').map(cell).collect::<Option<CellQuota>>();
    match cells {
        Some(cells) if !tenant.is_empty() => Ok((tenant.to_owned(), cells)),
        _ => Err(expected()),
    }
}

/// The quotas by tenant.
///
/// # Errors
/// Another policy than `HiveD` is used, or a tenant has two.
pub(super) fn collect_quotas(
    given: &[(String, CellQuota)],
    placement: PlacementAlgorithm,
) -> Result<BTreeMap<String, CellQuota>, CommandError> {
    if !given.is_empty() && placement != PlacementAlgorithm::Hived {
        let what = format!("{} has no quotas; use --placement hived", placement.name());
        return Err(CommandError::input("--quota", what));
    }
    let mut quotas = BTreeMap::new();
    for (tenant, cells) in given {
        if quotas.insert(tenant.clone(), cells.clone()).is_some() {
            let what = format!("tenant {tenant} has two; join its cells by +");
            return Err(CommandError::input("--quota", what));
        }
    }
    Ok(quotas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_cells_of_a_tenant() {
        assert_eq!(parse_quota("a=4x64+2x8"), Ok(("a".to_owned(), vec![(64, 4), (8, 2)])));
        for wrong in ["a", "=1x8", "a=", "a=8", "a=0x8", "a=1x0", "a=1x8+", "a=-1x8", "a=1x8x2"] {
            assert!(parse_quota(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tenant_has_one_quota_and_only_under_hived() {
        let quota = |text: &str| parse_quota(text).unwrap();
        let collect = |given: &[_], placement| {
            collect_quotas(given, placement).map_err(|error| error.to_string())
        };
        let one = [quota("a=1x8")];
        assert_eq!(collect(&one, PlacementAlgorithm::Hived).unwrap()["a"], [(8, 1)]);
        assert!(collect(&one, PlacementAlgorithm::Muri).unwrap_err().contains("hived"));
        let two = [quota("a=1x8"), quota("a=1x16")];
        assert!(collect(&two, PlacementAlgorithm::Hived).unwrap_err().contains("a has two"));
    }
}
