//! The part of the table that is about connection management.

use super::row::Source::{Bits, Field, Tail, Wire, Zero};
use super::row::{Row, When, row};

pub(crate) const MAD: &[Row] = &[
    row("infiniband.mad", 0, 256, Wire),
    row("infiniband.mad.baseversion", 0, 1, Field("base_version")),
    row("infiniband.mad.mgmtclass", 1, 1, Field("class")),
    row("infiniband.mad.classversion", 2, 1, Field("class_version")),
    row("infiniband.mad.method", 3, 1, Field("method")),
    row("infiniband.mad.status", 4, 2, Field("status")),
    row("infiniband.mad.classspecific", 6, 2, Field("class_specific")),
    row("infiniband.mad.transactionid", 8, 8, Field("transaction_id")),
    row("infiniband.mad.attributeid", 16, 2, Field("attribute_id")),
    row("infiniband.reserved", 18, 2, Zero),
    row("infiniband.mad.attributemodifier", 20, 4, Field("attribute_modifier")),
    row("infiniband.mad.data", 24, 232, Wire),
    // The message once more; its fields hang below this one.
    row("infiniband.smplid.smpdata", 24, 232, Wire),
];

pub(crate) const REQ: &[Row] = &[
    row("infiniband.cm.req", 0, 4, Field("local_comm_id")),
    // Later editions of the IBA have the vendor ID in what tshark calls reserved.
    row("infiniband.reserved", 4, 4, Field("vendor_id")),
    row("infiniband.cm.req.serviceid", 8, 8, Field("service_id")),
    row("infiniband.cm.req.serviceid.prefix", 8, 5, Bits("service_id", 24, 40)).when(When::ForIpService),
    row("infiniband.cm.req.serviceid.protocol", 13, 1, Bits("service_id", 16, 8)).when(When::ForIpService),
    row("infiniband.cm.req.serviceid.dport", 14, 2, Bits("service_id", 0, 16)).when(When::ForIpService),
    row("infiniband.cm.req.localcaguid", 16, 8, Field("local_ca_guid")),
    row("infiniband.reserved", 24, 4, Zero),
    row("infiniband.cm.req.localqkey", 28, 4, Field("local_qkey")),
    row("infiniband.cm.req.localqpn", 32, 3, Field("local_qpn")),
    row("infiniband.cm.req.responderres", 35, 1, Field("responder_resources")),
    row("infiniband.cm.req.localeecn", 36, 3, Field("local_eecn")),
    row("infiniband.cm.req.initdepth", 39, 1, Field("initiator_depth")),
    row("infiniband.cm.req.remoteeecn", 40, 3, Field("remote_eecn")),
    row("infiniband.cm.req.remoteresptout", 43, 1, Field("remote_cm_response_timeout")),
    row("infiniband.cm.req.transpsvctype", 43, 1, Field("transport_service")),
    row("infiniband.cm.req.e2eflowctrl", 43, 1, Field("end_to_end_flow_control")),
    row("infiniband.cm.req.startpsn", 44, 3, Field("starting_psn")),
    row("infiniband.cm.req.localresptout", 47, 1, Field("local_cm_response_timeout")),
    row("infiniband.cm.req.retrcount", 47, 1, Field("retry_count")),
    row("infiniband.cm.req.pkey", 48, 2, Field("pkey")),
    row("infiniband.cm.req.pppmtu", 50, 1, Field("path_mtu")),
    row("infiniband.cm.req.rdcexist", 50, 1, Field("rdc_exists")),
    row("infiniband.cm.req.rnrretrcount", 50, 1, Field("rnr_retry_count")),
    row("infiniband.cm.req.maxcmretr", 51, 1, Field("max_cm_retries")),
    row("infiniband.cm.req.srq", 51, 1, Field("srq")),
    row("infiniband.cm.req.ext_transport", 51, 1, Field("extended_transport")),
];

pub(crate) const PRIMARY: &[Row] = &[
    row("infiniband.cm.req.prim_locallid", 0, 2, Field("local_lid")),
    row("infiniband.cm.req.prim_remotelid", 2, 2, Field("remote_lid")),
    row("infiniband.cm.req.prim_localgid_ipv4", 16, 4, Tail("local_gid")).when(When::OverIpv4),
    row("infiniband.cm.req.prim_remotegid_ipv4", 32, 4, Tail("remote_gid")).when(When::OverIpv4),
    row("infiniband.cm.req.prim_localgid", 4, 16, Field("local_gid")).when(When::OverIpv6),
    row("infiniband.cm.req.prim_remotegid", 20, 16, Field("remote_gid")).when(When::OverIpv6),
    row("infiniband.cm.req.prim_flowlabel", 36, 4, Field("flow_label")),
    row("infiniband.cm.req.prim_reserved0", 36, 4, Zero),
    row("infiniband.cm.req.prim_pktrate", 36, 4, Field("packet_rate")),
    row("infiniband.cm.req.prim_tfcclass", 40, 1, Field("traffic_class")),
    row("infiniband.cm.req.prim_hoplim", 41, 1, Field("hop_limit")),
    row("infiniband.cm.req.prim_sl", 42, 1, Field("service_level")),
    row("infiniband.cm.req.prim_subnetlocal", 42, 1, Field("subnet_local")),
    row("infiniband.cm.req.prim_reserved1", 42, 1, Zero),
    row("infiniband.cm.req.prim_localacktout", 43, 1, Field("local_ack_timeout")),
    row("infiniband.cm.req.prim_reserved2", 43, 1, Zero),
];

pub(crate) const ALTERNATE: &[Row] = &[
    row("infiniband.cm.req.alt_locallid", 0, 2, Field("local_lid")),
    row("infiniband.cm.req.alt_remotelid", 2, 2, Field("remote_lid")),
    row("infiniband.cm.req.alt_localgid", 4, 16, Field("local_gid")),
    row("infiniband.cm.req.alt_remotegid", 20, 16, Field("remote_gid")),
    row("infiniband.cm.req.alt_flowlabel", 36, 4, Field("flow_label")),
    row("infiniband.cm.req.alt_reserved0", 36, 4, Zero),
    row("infiniband.cm.req.alt_pktrate", 36, 4, Field("packet_rate")),
    row("infiniband.cm.req.alt_tfcclass", 40, 1, Field("traffic_class")),
    row("infiniband.cm.req.alt_hoplim", 41, 1, Field("hop_limit")),
    row("infiniband.cm.req.alt_sl", 42, 1, Field("service_level")),
    row("infiniband.cm.req.alt_subnetlocal", 42, 1, Field("subnet_local")),
    row("infiniband.cm.req.alt_reserved1", 42, 1, Zero),
    row("infiniband.cm.req.alt_localacktout", 43, 1, Field("local_ack_timeout")),
    // tshark has one name for the reserved bits of both bytes.
    row("infiniband.cm.req.alt_reserved1", 43, 1, Zero),
];

pub(crate) const IP_CM: &[Row] = &[
    row("infiniband.cm.req.ip_cm", 0, 92, Wire),
    row("infiniband.cm.req.ip_cm.majv", 0, 1, Field("major_version")),
    row("infiniband.cm.req.ip_cm.minv", 0, 1, Field("minor_version")),
    row("infiniband.cm.req.ip_cm.ipv", 1, 1, Field("ip_version")),
    row("infiniband.cm.req.ip_cm.reserved", 1, 1, Zero),
    row("infiniband.cm.req.ip_cm.sport", 2, 2, Field("source_port")),
    row("infiniband.cm.req.ip_cm.sip4", 16, 4, Field("source_ip")).when(When::BetweenIpv4),
    row("infiniband.cm.req.ip_cm.dip4", 32, 4, Field("destination_ip")).when(When::BetweenIpv4),
    row("infiniband.cm.req.ip_cm.sip6", 4, 16, Field("source_ip")).when(When::BetweenIpv6),
    row("infiniband.cm.req.ip_cm.dip6", 20, 16, Field("destination_ip")).when(When::BetweenIpv6),
];

pub(crate) const REQ_PRIVATE: &[Row] = &[
    row("infiniband.cm.req.ip_cm.private", 0, 56, Field("private_data")).when(When::ForIpService),
    row("infiniband.cm.req.private", 0, 92, Field("private_data")).when(When::ForOtherService),
];

pub(crate) const REP: &[Row] = &[
    row("infiniband.cm.rep", 0, 4, Field("local_comm_id")),
    row("infiniband.cm.rep.remotecommid", 4, 4, Field("remote_comm_id")),
    row("infiniband.cm.rep.localqkey", 8, 4, Field("local_qkey")),
    row("infiniband.cm.rep.localqpn", 12, 3, Field("local_qpn")),
    // Later editions of the IBA have the vendor ID in what tshark calls reserved.
    row("infiniband.reserved", 15, 1, Bits("vendor_id", 16, 8)),
    row("infiniband.cm.rep.localeecn", 16, 3, Field("local_eecn")),
    row("infiniband.reserved", 19, 1, Bits("vendor_id", 8, 8)),
    row("infiniband.cm.rep.startpsn", 20, 3, Field("starting_psn")),
    row("infiniband.reserved", 23, 1, Bits("vendor_id", 0, 8)),
    row("infiniband.cm.rep.respres", 24, 1, Field("responder_resources")),
    row("infiniband.cm.rep.initdepth", 25, 1, Field("initiator_depth")),
    row("infiniband.cm.rep.tgtackdelay", 26, 1, Field("target_ack_delay")),
    row("infiniband.cm.rep.failoveracc", 26, 1, Field("failover")),
    row("infiniband.cm.rep.e2eflowctrl", 26, 1, Field("end_to_end_flow_control")),
    row("infiniband.cm.rep.rnrretrcount", 27, 1, Field("rnr_retry_count")),
    row("infiniband.cm.rep.srq", 27, 1, Field("srq")),
    row("infiniband.cm.rep.reserved", 27, 1, Zero),
    row("infiniband.cm.rep.localcaguid", 28, 8, Field("local_ca_guid")),
    row("infiniband.cm.rep.private", 36, 196, Field("private_data")),
];

pub(crate) const RTU: &[Row] = &[
    row("infiniband.cm.rtu.localcommid", 0, 4, Field("local_comm_id")),
    row("infiniband.cm.rtu.remotecommid", 4, 4, Field("remote_comm_id")),
    row("infiniband.cm.rtu.private", 8, 224, Field("private_data")),
];

pub(crate) const REJ: &[Row] = &[
    row("infiniband.cm.rej.localcommid", 0, 4, Field("local_comm_id")),
    row("infiniband.cm.rej.remotecommid", 4, 4, Field("remote_comm_id")),
    row("infiniband.cm.rej.msgrej", 8, 1, Field("message")),
    row("infiniband.cm.rej.reserved0", 8, 1, Zero),
    row("infiniband.cm.rej.rejinfolen", 9, 1, Field("info_len")),
    row("infiniband.cm.rej.reserved1", 9, 1, Zero),
    row("infiniband.cm.rej.reason", 10, 2, Field("reason")),
    row("infiniband.cm.rej.ari", 12, 72, Field("info")),
    row("infiniband.cm.rej.private", 84, 148, Field("private_data")),
];

pub(crate) const DREQ: &[Row] = &[
    row("infiniband.cm.dreq.localcommid", 0, 4, Field("local_comm_id")),
    row("infiniband.cm.dreq.remotecommid", 4, 4, Field("remote_comm_id")),
    // tshark's name says REQ, but no REQ has this field.
    row("infiniband.cm.req.remoteqpneecn", 8, 3, Field("remote_qpn")),
    row("infiniband.reserved", 11, 1, Zero),
    row("infiniband.cm.dreq.private", 12, 220, Field("private_data")),
];

pub(crate) const DREP: &[Row] = &[
    row("infiniband.cm.drsp.localcommid", 0, 4, Field("local_comm_id")),
    row("infiniband.cm.drsp.remotecommid", 4, 4, Field("remote_comm_id")),
    row("infiniband.cm.drsp.private", 8, 224, Field("private_data")),
];
