//! Packets that arrive with a steering context, in whatever encoding: how long they live, and where they are.

use crate::arrival::Arrival;
use crate::counters::{Drop, Refused};
use crate::frame::Frame;
use crate::pipeline::Pipeline;
use crate::registry::{HopId, PlaceId};
use crate::rules::Rules;
use wire::steering::SteeringContext;
use wire::{FiveTuple, IpPacket, nsh};

/// A context one forwarder on. It falls before anything is looked up; where it ends, the look-up tells only whose packet it was.
pub(crate) fn still_alive(
    rules: &Rules,
    context: SteeringContext,
) -> Result<SteeringContext, Refused> {
    context.passed().ok_or_else(|| Refused {
        reason: Drop::LoopGuard.into(),
        at: rules
            .stage_of(&context)
            .ok()
            .map(|(place, _)| (place, context.direction)),
    })
}

impl Rules {
    /// The stage that a context names, and its number on the path.
    pub(crate) fn stage_of(&self, context: &SteeringContext) -> Result<(PlaceId, u8), Drop> {
        let path = self.paths.get(&(context.chain, context.egress));
        let path = path.ok_or(Drop::PathUnknown)?;
        let number = path.stage_number(context.service_index.get(), context.direction);
        let number = number.ok_or(Drop::StageUnknown)?;
        let place = path.place(number).ok_or(Drop::StageUnknown)?;
        Ok((place, number))
    }
}

impl<F: Frame> Pipeline<F> {
    /// A packet with a context that led to a place, in a frame that begins with its network service header of `offset` bytes, or with
    /// the packet itself.
    pub(crate) fn arrive(
        &mut self,
        place: PlaceId,
        from: HopId,
        context: &SteeringContext,
        frame: &mut F,
        offset: usize,
        now: u32,
    ) -> Result<(Arrival, FiveTuple), Refused> {
        let at = (place, context.direction);
        if offset > 0 {
            nsh::decrement_ttl(frame.data_mut());
        }
        let ip = IpPacket::parse(frame.data().get(offset..).unwrap_or_default());
        let ip = ip.map_err(Refused::at(at))?;
        frame.truncate(offset + ip.length);
        let shown = self.connection(place, &ip, now).map_err(Refused::at(at))?;
        let arrival = Arrival {
            offset: offset as u16,
            has_service_header: offset > 0,
            loop_guard: context.loop_guard,
            ..Arrival::new(place, context.direction, from, &ip, shown.is_error)
        };
        Ok((arrival, shown.tuple))
    }
}
