"""An agent of another maker: it knows the .proto files, and nothing else of us.

Arguments: the folder of the .proto files, a folder to write to, the controller, the analyzer, the address of our RNIC.
Prints one JSON object with what it was told.
"""

import json
import sys
import time

from grpc_tools import protoc

protos, out, controller, analyzer, ours = sys.argv[1:]
names = ["controller_agent.proto", "ferroce_mesh_v1.proto"]
if protoc.main(["", f"-I{protos}", f"--python_out={out}", f"--grpc_python_out={out}", *names]) != 0:
    sys.exit("the .proto files do not compile")
sys.path.insert(0, out)

import grpc  # noqa: E402
import controller_agent_pb2 as rebuild  # noqa: E402
import controller_agent_pb2_grpc as rebuild_grpc  # noqa: E402
import ferroce_mesh_v1_pb2 as mesh  # noqa: E402
import ferroce_mesh_v1_pb2_grpc as mesh_grpc  # noqa: E402

WAIT = 20
told = {}

# The protocol of the rebuild.
channel = grpc.insecure_channel(controller)
service = rebuild_grpc.ControllerServiceStub(channel)
gid = "::ffff:127.0.148.1"
rnic = rebuild.RnicInfo(gid=gid, qpn=77, ip_address="127.0.148.1", host_name="stranger", tor_id="t1",
                        device_name="mlx5_0")
request = rebuild.AgentRegistrationRequest(agent_id="stranger", agent_ip="127.0.148.1", hostname="stranger",
                                           tor_id="t1", rnics=[rnic])
answer = service.RegisterAgent(request, timeout=WAIT)
told["registered"] = [answer.success, answer.message]
thief = rebuild.AgentRegistrationRequest(agent_id="thief", tor_id="t1", hostname="thief",
                                         rnics=[rebuild.RnicInfo(gid=f"::ffff:{ours}", qpn=5)])
told["thief"] = service.RegisterAgent(thief, timeout=WAIT).success
for name, kind in [("below", rebuild.TOR_MESH), ("between", rebuild.INTER_TOR)]:
    request = rebuild.PinglistRequest(agent_id="stranger", tor_id="t1", requester_gid=gid, type=kind)
    targets = service.GetPinglist(request, timeout=WAIT).targets
    told[name] = [[one.target_gid, one.target_qpn, one.source_port, one.flow_label] for one in targets]
line = rebuild.PathSummary(source_gid=gid, target_gid=f"::ffff:{ours}", probe_total=50, probe_success=40,
                           probe_failed=10, network_rtt_min_ns=5, network_rtt_max_ns=9)
answer = service.ReportProbeAnalysis(rebuild.ProbeAnalysisReport(agent_id="stranger", summaries=[line]),
                                     timeout=WAIT)
told["report"] = [answer.accepted, answer.sla_violations]

# Our own protocol.
service = mesh_grpc.MeshStub(channel)
epoch = time.time_ns()
rnic = mesh.Rnic(address="127.0.148.2", qpn=78, qkey=0x11111111, tor="t2", device="mlx5_0")
lease = service.Register(mesh.RegisterRequest(agent="other", epoch=epoch, host="other", rnics=[rnic]),
                         timeout=WAIT)
told["lease"] = [lease.lease_ms, lease.window_ms]
lists = service.Watch(mesh.WatchRequest(agent="other", epoch=epoch), timeout=WAIT)
first = next(lists)
targets = {target.to: target for target in first.set}
while not any(target.ports for target in targets.values()):
    # The list may be of a moment ago; what is new follows.
    news = next(lists)
    for pair in news.removed:
        targets.pop(pair.to, None)
    targets.update({target.to: target for target in news.set})
told["whole"] = [first.whole, sorted(to for to, target in targets.items() if target.ports)]
told["answered"] = sorted(to for to, target in targets.items() if target.answer_ports)
told["analyzer"] = service.Renew(mesh.RenewRequest(agent="other", epoch=epoch), timeout=WAIT).analyzer
lists.cancel()


def windows(first_number):
    yield mesh.ReportRequest(hello=mesh.Hello(agent="other", epoch=epoch))
    for number in range(first_number, first_number + 2):
        now = time.time_ns()
        outcomes = mesh.Outcomes(ok=3, time_out=1)
        flow = mesh.Flow(**{"from": bytes([127, 0, 148, 2])}, to=bytes(int(part) for part in ours.split(".")),
                         port=50000, reply_port=50000, outcomes=outcomes)
        yield mesh.ReportRequest(window=mesh.Window(epoch=epoch, number=number, start_unix_ns=now - 10**9,
                                                    end_unix_ns=now, flows=[flow]))


analysis = mesh_grpc.AnalysisStub(grpc.insecure_channel(analyzer))
end = time.monotonic() + WAIT
for first_number in [1, 2]:
    while True:
        try:
            replies = list(analysis.Report(windows(first_number), timeout=WAIT))
            break
        except grpc.RpcError as error:
            # The analyzer hears of us from the controller, which takes a moment.
            if error.code() != grpc.StatusCode.FAILED_PRECONDITION or time.monotonic() > end:
                raise
            time.sleep(0.05)
    told[f"settled {first_number}"] = [[reply.number, reply.refusal] for reply in replies]
print(json.dumps(told))
