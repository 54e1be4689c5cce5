//! `port_down` and `backup_down`: ports whose cable, or the switch at whose end, has failed. A
//! drained port is not down: what is still on the way may use it.

use p4::entry::TableEntry;
use p4::fabric::{self, Port};

use super::site::Site;

pub(super) fn ports_down(site: &Site<'_>) -> Vec<TableEntry> {
    down(site).map(fabric::port_down).collect()
}

pub(super) fn backups_down(site: &Site<'_>) -> Vec<TableEntry> {
    down(site).map(fabric::backup_down).collect()
}

fn down(site: &Site<'_>) -> impl Iterator<Item = Port> {
    let failed = site
        .fabric_links()
        .filter(|link| !site.all.fabric.is_up(*link));
    failed.filter_map(|link| site.port(link))
}
