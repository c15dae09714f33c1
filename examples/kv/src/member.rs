//! What nodes and clients have in common: a device, memory in a pool, and a broker.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ferroce::broker::pool::Pool;
use ferroce::broker::{Broker, Builder, Members};
use ferroce::{
    Access, Context, DeviceInfo, FaultPlan, MemoryRegion, ProtectionDomain, ProviderChoice, devices,
    open_cards_at,
};

/// How long nodes and clients wait for each other: much more than anything takes while all of them live.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A place in the mesh.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// The number of this member
    #[arg(long, value_name = "N")]
    pub(crate) id: u32,
    /// All members as HOST:PORT,HOST:PORT,...: first the nodes, then the clients
    #[arg(long, value_name = "LIST")]
    pub(crate) members: Members,
    /// How many of them are nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) nodes: u32,
    /// Faults in all that is sent, such as loss=0.005,seed=1
    #[arg(long, value_name = "PLAN", value_parser = faults)]
    pub(crate) faults: Option<FaultPlan>,
}

pub(crate) fn faults(text: &str) -> Result<FaultPlan, String> {
    FaultPlan::parse(text).map_err(|error| error.to_string())
}

/// The same as [`faults`] reads.
pub(crate) fn faults_text(plan: &FaultPlan) -> String {
    let FaultPlan { loss, dup, reorder, corrupt, seed } = plan;
    format!("loss={loss},dup={dup},reorder={reorder},corrupt={corrupt},seed={seed}")
}

/// An open device with memory.
pub(crate) struct Base {
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    pub(crate) region: Arc<MemoryRegion>,
    pub(crate) pool: Pool,
}

/// The soft device that has an address, if one has it and programs are to use it.
fn soft_device(address: IpAddr) -> anyhow::Result<Option<String>> {
    if ProviderChoice::from_env()? == ProviderChoice::System {
        return Ok(None);
    }
    let mut soft = devices()?.into_iter();
    let has = |info: &DeviceInfo| info.loopback && address.is_loopback() || info.addresses.contains(&address);
    Ok(soft.find(has).map(|info| info.name))
}

/// Bytes of a slab: a directory must fit into one.
pub(crate) const SLAB: usize = 64 << 10;

impl Base {
    pub(crate) fn open(place: &Place, slabs: usize, access: Access, engines: usize) -> anyhow::Result<Self> {
        let me = place.members.get(place.id);
        let me = me.with_context(|| format!("member {} is not on the list", place.id))?;
        let address = me.address.ip();
        let there = || format!("cannot open a device at {address}");
        let context = match soft_device(address)? {
            Some(name) => {
                let mut builder = Context::builder(&name).address(address).engines(engines);
                if let Some(plan) = place.faults {
                    // What befalls one member is not to befall all at the same time.
                    let seed = plan.seed.wrapping_add(place.id.into());
                    builder = builder.faults(FaultPlan { seed, ..plan });
                }
                builder.open().with_context(there)?
            }
            // A card has its own faults, and turns its own engines.
            None => open_cards_at(address).with_context(there)?.into_iter().next().with_context(there)?,
        };
        let domain = context.protection_domain()?;
        let region = Arc::new(domain.allocate(slabs * SLAB, access)?);
        let pool = Pool::builder().slab_size(SLAB).over(Arc::clone(&region))?;
        Ok(Self { context, domain, region, pool })
    }

    /// A broker on this device, to be described further.
    pub(crate) fn broker(&self, place: &Place) -> Builder {
        let broker = Broker::builder(place.id, place.members.clone()).device(&self.context, &self.domain);
        broker.patience(PATIENCE).deadline(PATIENCE)
    }
}
