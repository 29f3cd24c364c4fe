//! Service paths of a rule set: their stages, targets and identifiers.

use super::routes::routes;
use super::{Compiler, VNF_LIMIT, slot};
use crate::registry::{HopId, HopName, PlaceId, PlaceName};
use crate::routes::{Leg, Routes};
use crate::rules::error::RuleError;
use crate::rules::fields::{Result, each, even_label, label, prefix};
use crate::rules::{
    AttachmentHop, AttachmentKind, AttachmentState, Context, End, Hop, Path, Place, Stage,
};
use crate::targets::{Target, Targets};
use contracts::forwarder as contract;
use wire::Label;
use wire::nsh::ServicePathIdentifier;
use wire::steering::{Direction, Encoding, ServicePath};

impl Compiler<'_> {
    pub(super) fn paths(&mut self) -> Result<()> {
        for (index, path) in self.set.paths.iter().enumerate() {
            let field = format!("paths[{index}]");
            let chain = even_label(&format!("{field}.chain_label"), path.chain_label)?;
            let egress = label(&format!("{field}.egress_label"), path.egress_label)?;
            if self.rules.paths.contains_key(&(chain, egress)) {
                let (chain, egress) = (path.chain_label, path.egress_label);
                let problem = format!("the path {chain} {egress} is listed twice");
                return Err(RuleError::new(field, problem));
            }
            if path.vnf_count > VNF_LIMIT {
                return Err(RuleError::new(
                    field + ".vnf_count",
                    format!("give at most {VNF_LIMIT}"),
                ));
            }
            let routes = routes(&field, path)?;
            let mut stages = vec![None; path.vnf_count as usize + 1];
            for (index, stage) in path.stages.iter().enumerate() {
                let field = format!("{field}.stages[{index}]");
                let place = self.stage(&field, path, stage, (chain, egress), &routes)?;
                if stages[stage.number as usize - 1].replace(place).is_some() {
                    return Err(RuleError::new(
                        field + ".number",
                        format!("stage {} is listed twice", stage.number),
                    ));
                }
            }
            for (index, stage) in path.stages.iter().enumerate() {
                if let Some(place) = stages[stage.number as usize - 1] {
                    let field = format!("{field}.stages[{index}]");
                    self.belong(&field, path.vnf_count, stage, place)?;
                }
            }
            let compiled = Path {
                vnf_count: path.vnf_count as u8,
                identifiers: self.identifiers(&field, path, chain, egress)?,
                stages,
            };
            self.rules.paths.insert((chain, egress), compiled);
        }
        Ok(())
    }

    /// A path's service path identifiers, which it needs where somebody speaks NSH.
    fn identifiers(
        &mut self,
        field: &str,
        path: &contract::ServicePath,
        chain: Label,
        egress: Label,
    ) -> Result<Option<[ServicePathIdentifier; 2]>> {
        let given = [
            (
                "nsh_forward_path",
                path.nsh_forward_path,
                Direction::Forward,
            ),
            (
                "nsh_reverse_path",
                path.nsh_reverse_path,
                Direction::Reverse,
            ),
        ];
        if given.iter().all(|(_, number, _)| *number == 0) {
            return match self.speaks_nsh(path) {
                Some(who) => Err(RuleError::new(
                    format!("{field}.nsh_forward_path"),
                    format!("{who} speaks NSH; give both service path identifiers"),
                )),
                None => Ok(None),
            };
        }
        let mut identifiers = Vec::new();
        for (name, number, direction) in given {
            let field = format!("{field}.{name}");
            let identifier = ServicePathIdentifier::new(number)
                .filter(|_| number != 0)
                .ok_or_else(|| RuleError::new(&field, "give 1 to 16777215"))?;
            let path = ServicePath {
                chain,
                direction,
                egress,
            };
            if self.rules.identified.insert(identifier, path).is_some() {
                let problem = format!("{number} is another service path's too");
                return Err(RuleError::new(field, problem));
            }
            identifiers.push(identifier);
        }
        Ok(identifiers.try_into().ok())
    }

    /// A target of the path that speaks NSH.
    fn speaks_nsh(&self, path: &contract::ServicePath) -> Option<String> {
        let ends = path
            .stages
            .iter()
            .flat_map(|stage| [&stage.downstream, &stage.upstream]);
        let names = ends.flatten().flat_map(|end| {
            let remote = end
                .remote
                .iter()
                .map(|target| HopName::Peer(target.peer.clone()));
            let local = end.local.iter().filter_map(|target| match &target.target {
                Some(contract::local_target::Target::Attachment(id)) => {
                    Some(HopName::Attachment(id.clone()))
                }
                _ => None,
            });
            remote.chain(local)
        });
        names
            .filter_map(|name| self.rules.hop(self.hops.get(&name)?.0))
            .find_map(|hop| match hop {
                Hop::Peer(peer) if peer.template.encoding() == Encoding::VxlanGpeNsh => {
                    Some(format!("peer {:?}", peer.id))
                }
                Hop::Attachment(attachment)
                    if attachment.kind == AttachmentKind::LabelAware(Context::Nsh) =>
                {
                    Some(format!("attachment {:?}", attachment.id))
                }
                _ => None,
            })
    }

    fn stage(
        &mut self,
        field: &str,
        path: &contract::ServicePath,
        stage: &contract::Stage,
        (chain, egress): (Label, Label),
        routes: &Routes,
    ) -> Result<PlaceId> {
        if !(1..=path.vnf_count + 1).contains(&stage.number) {
            return Err(RuleError::new(
                format!("{field}.number"),
                format!("give 1 to {}", path.vnf_count + 1),
            ));
        }
        let name = PlaceName::Stage {
            chain: chain.get(),
            egress: egress.get(),
            stage: stage.number,
        };
        let place = self.place(field, name)?;
        let leg = |from: u32, to: u32| Leg {
            routes,
            here: &self.set.site,
            from: from as usize,
            to: to as usize,
        };
        let compiled = Stage {
            chain_label: chain,
            egress_label: egress,
            number: stage.number as u8,
            vnf_count: path.vnf_count as u8,
            customer: path.customer.clone(),
            chain: path.chain.clone(),
            downstream: self.end(
                &format!("{field}.downstream"),
                leg(stage.number - 1, stage.number),
                stage.downstream.as_ref(),
            )?,
            upstream: self.end(
                &format!("{field}.upstream"),
                leg(stage.number, stage.number - 1),
                stage.upstream.as_ref(),
            )?,
        };
        *slot(&mut self.rules.places, place.index()) = Some(Place::Stage(Box::new(compiled)));
        Ok(place)
    }

    /// Refuses local targets of a stage that are somewhere else on the path, or on another.
    fn belong(
        &self,
        field: &str,
        vnf_count: u32,
        stage: &contract::Stage,
        place: PlaceId,
    ) -> Result<()> {
        let ends = [
            ("downstream", &stage.downstream, stage.number <= vnf_count),
            ("upstream", &stage.upstream, stage.number > 1),
        ];
        for (name, end, is_vnf) in ends {
            let targets = end.iter().flat_map(|end| &end.local).enumerate();
            for (index, target) in targets {
                let beside = |attachment: &AttachmentHop| match name {
                    "downstream" => attachment.stage_before,
                    _ => attachment.stage_behind,
                };
                let problem = match self.local(target).and_then(|hop| self.rules.hop(hop)) {
                    Some(Hop::Attachment(attachment)) if !is_vnf || beside(attachment) != place => {
                        format!("attachment {:?} is at another stage or path", attachment.id)
                    }
                    Some(Hop::Edge(edge)) if is_vnf => {
                        format!("edge {:?} is no VNF, as there is one here", edge.id)
                    }
                    _ => continue,
                };
                let field = format!("{field}.{name}.local[{index}]");
                return Err(RuleError::new(field, problem));
            }
        }
        Ok(())
    }

    /// The hop that a local target names, if it is in the rules.
    fn local(&self, target: &contract::LocalTarget) -> Option<HopId> {
        let name = match target.target.as_ref()? {
            contract::local_target::Target::Attachment(id) => HopName::Attachment(id.clone()),
            contract::local_target::Target::Edge(id) => HopName::Edge(id.clone()),
        };
        Some(self.hops.get(&name)?.0)
    }

    fn end(&self, field: &str, leg: Leg<'_>, end: Option<&contract::StageEnd>) -> Result<End> {
        let (mut local, mut remote, mut withdrawn) = (Vec::new(), Vec::new(), Vec::new());
        for (index, target) in end.iter().flat_map(|end| &end.local).enumerate() {
            let field = format!("{field}.local[{index}]");
            let name = match &target.target {
                Some(contract::local_target::Target::Attachment(id)) => {
                    HopName::Attachment(id.clone())
                }
                Some(contract::local_target::Target::Edge(id)) => HopName::Edge(id.clone()),
                None => return Err(RuleError::new(field, "name an attachment or an edge")),
            };
            local.push(self.target(&field, &name, target.weight, &target.prefixes)?);
        }
        for (index, target) in end.iter().flat_map(|end| &end.remote).enumerate() {
            let field = format!("{field}.remote[{index}]");
            let name = HopName::Peer(target.peer.clone());
            let compiled = self.target(&field, &name, target.weight, &target.prefixes)?;
            if target.withdrawn {
                if target.weight > 0 {
                    let field = format!("{field}.weight");
                    return Err(RuleError::new(field, "give 0 to what is withdrawn"));
                }
                // A sibling gives back what it has nobody for, and may be on the way of connections that moved.
                if compiled.site() != self.set.site {
                    withdrawn.push(compiled.hop);
                }
            }
            remote.push(compiled);
        }
        let seed = self.rules.selection_seed;
        let targets = |list| {
            Targets::new(seed, leg.to as u32, list)
                .ok_or_else(|| RuleError::new(field, "too many targets"))
        };
        let all = local.iter().cloned().chain(remote).collect();
        Ok(End {
            local: targets(local)?,
            all: targets(all)?.along(seed, leg),
            withdrawn,
        })
    }

    fn target(
        &self,
        field: &str,
        name: &HopName,
        weight: u32,
        prefixes: &[String],
    ) -> Result<Target> {
        let (hop, identity) = self
            .hops
            .get(name)
            .ok_or_else(|| RuleError::new(field, format!("{name:?} is not in this rule set")))?;
        let weight = u16::try_from(weight)
            .map_err(|_| RuleError::new(format!("{field}.weight"), "give 0 to 65535"))?;
        let keeps_only = match self.rules.hop(*hop) {
            Some(Hop::Attachment(attachment)) => attachment.state != AttachmentState::Active,
            Some(Hop::Peer(peer)) => !peer.alive || peer.away,
            _ => false,
        };
        let forwarder = match name {
            HopName::Peer(id) => id.clone(),
            _ => format!("{}/{}", self.rules.site, self.rules.forwarder),
        };
        Ok(Target {
            hop: *hop,
            forwarder,
            identity: identity.clone(),
            weight: if keeps_only { 0 } else { weight },
            prefixes: each(field, "prefixes", prefixes, prefix)?,
        })
    }
}
