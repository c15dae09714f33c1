// Transport headers, field by field, with the names that the device uses.

const at = (bytes, place, length) => {
  let value = 0n;
  for (let step = 0; step < length; step++) value = (value << 8n) | BigInt(bytes[place + step] ?? 0);
  return value;
};
const hexField = (key, label, place, length) => (bytes) => [key, label, hex(at(bytes, place, length), length * 2)];
const bit = (key, label, place, mask) => (bytes) => [key, label, bytes[place] & mask ? "1" : "0"];

// In the order in which they follow the first: bit, key, title, length, fields.
const EXTENSIONS = [
  [1 << 0, "xrceth", "XRC Extended Transport Header", 4, [hexField("srqn", "Shared Receive Queue", 1, 3)]],
  [1 << 1, "deth", "Datagram Extended Transport Header", 8, [hexField("qkey", "Queue Key", 0, 4), hexField("source_qp", "Source Queue Pair", 5, 3)]],
  [1 << 2, "feth", "FLUSH Extended Transport Header", 4, [(bytes) => ["placement", "Placement Type", hex(bytes[3] & 15, 1)], (bytes) => ["scope", "Selectivity Level", hex((bytes[3] >> 4) & 3, 1)]]],
  [1 << 3, "reth", "RDMA Extended Transport Header", 16, [hexField("address", "Virtual Address", 0, 8), hexField("rkey", "Remote Key", 8, 4), (bytes) => ["length", "DMA Length", String(at(bytes, 12, 4))]]],
  [1 << 4, "atomiceth", "Atomic Extended Transport Header", 28, [hexField("address", "Virtual Address", 0, 8), hexField("rkey", "Remote Key", 8, 4), hexField("swap_or_add", "Swap (or Add)", 12, 8), hexField("compare", "Compare", 20, 8)]],
  [1 << 10, "atomicmasks", "Atomic Masks", 16, [hexField("swap_or_add", "Swap Mask (or Field Boundaries)", 0, 8), hexField("compare", "Compare Mask", 8, 8)]],
  [1 << 5, "aeth", "ACK Extended Transport Header", 4, [(bytes) => ["syndrome", "Syndrome", `${told.syndromes[bytes[0]]} (${hex(bytes[0], 2)})`], hexField("msn", "Message Sequence Number", 1, 3)]],
  [1 << 6, "atomicacketh", "Atomic ACK Extended Transport Header", 8, [hexField("original", "Original Remote Data", 0, 8)]],
  [1 << 7, "immdt", "Immediate Data", 4, [hexField("data", "Immediate Data", 0, 4)]],
  [1 << 8, "ieth", "Invalidate Extended Transport Header", 4, [hexField("rkey", "Remote Key", 0, 4)]],
  [1 << 9, "cnp", "Congestion Notification", 16, []],
];

const BASE = [
  (bytes) => ["opcode", "Opcode", `${operationName(bytes[0])} (${hex(bytes[0], 2)})`],
  bit("solicited", "Solicited Event", 1, 0x80),
  bit("migrated", "Migrated", 1, 0x40),
  (bytes) => ["pad", "Pad Count", String((bytes[1] >> 4) & 3)],
  hexField("pkey", "Partition Key", 2, 2),
  bit("fecn", "Forward Congestion", 4, 0x80),
  bit("becn", "Backward Congestion", 4, 0x40),
  hexField("dest_qp", "Destination Queue Pair", 5, 3),
  bit("ack_request", "Acknowledge Request", 8, 0x80),
  hexField("psn", "Packet Sequence Number", 9, 3),
];

const operationName = (opcode) => (told.opcodes[opcode] ? told.opcodes[opcode][0].replace(/^\S+ /, "") : "no known opcode");

const headerBytes = (arrow) => {
  const start = columns.head[arrow];
  return columns.headers.subarray(start, start + columns.headLength[arrow]);
};

// The headers of a packet: key, title and fields of each.
function decode(arrow) {
  const bytes = headerBytes(arrow);
  const read = [{ key: "bth", title: "Base Transport Header", fields: BASE.map((field) => field(bytes)) }];
  let place = 12;
  const held = told.opcodes[bytes[0]] ? told.opcodes[bytes[0]][1] : 0;
  for (const [mask, key, title, length, fields] of EXTENSIONS) {
    if (held & mask) {
      const part = bytes.subarray(place, place + length);
      read.push({ key, title, fields: fields.map((field) => field(part)) });
      place += length;
    }
  }
  return read;
}
