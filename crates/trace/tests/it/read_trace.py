"""What the protocol buffers of Perfetto read in a trace, as JSON."""

import collections
import json
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

trace = pb.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())

tracks, names, annotations, categories = {}, {}, {}, {}
stacks = collections.defaultdict(list)
slices, instants, counters = [], [], []
wall = None
assert not trace.FindInitializationErrors()
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    if packet.HasField("clock_snapshot"):
        clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        wall = clocks[1] - clocks[6]
    if packet.HasField("interned_data"):
        assert packet.sequence_flags == 1
        names = {name.iid: name.name for name in packet.interned_data.event_names}
        annotations = {name.iid: name.name for name in packet.interned_data.debug_annotation_names}
        categories = {name.iid: name.name for name in packet.interned_data.event_categories}
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid not in tracks and (not track.parent_uuid or track.parent_uuid in tracks)
        name = track.process.process_name if track.HasField("process") else track.name
        tracks[track.uuid] = {
            "name": name,
            "parent": track.parent_uuid,
            "pid": track.process.pid,
            "counter": track.HasField("counter"),
        }

events = [packet for packet in trace.packet if packet.HasField("track_event")]
# In the order of time; at the same time, as they stand in the file.
for packet in sorted(events, key=lambda packet: packet.timestamp):
    event = packet.track_event
    assert event.track_uuid in tracks, event
    told = {
        annotations[note.name_iid]: note.string_value or note.uint_value for note in event.debug_annotations
    }
    entry = {
        "time": packet.timestamp,
        "track": event.track_uuid,
        "name": names[event.name_iid] if event.name_iid else None,
        "flows": sorted(str(flow) for flow in event.flow_ids),
        "told": told,
        "kind": [categories[category] for category in event.category_iids],
    }
    if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
        entry["depth"] = len(stacks[event.track_uuid])
        stacks[event.track_uuid].append(entry)
    elif event.type == pb.TrackEvent.TYPE_SLICE_END:
        begun = stacks[event.track_uuid].pop()
        begun["end"] = packet.timestamp
        slices.append(begun)
    elif event.type == pb.TrackEvent.TYPE_INSTANT:
        instants.append(entry)
    else:
        assert event.type == pb.TrackEvent.TYPE_COUNTER and tracks[event.track_uuid]["counter"]
        counters.append({"track": event.track_uuid, "value": event.counter_value})
assert not any(stacks.values()), "every slice ends"
json.dump(
    {"tracks": tracks, "slices": slices, "instants": instants, "counters": counters, "wall": wall}, sys.stdout
)
