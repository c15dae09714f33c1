"""A collector of OpenTelemetry that knows the public messages, and nothing else of us.

Argument: the address and port to listen on. The first request is answered with 503, so that it has to come again. GET
says what came last, as one JSON object.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics

told = {"requests": 0, "refused": 0, "backwards": 0, "starts": [], "sums": {}, "gauges": {}, "histograms": {}}
before = {}


def key(point):
    return json.dumps({one.key: one.value.string_value for one in point.attributes}, sort_keys=True)


def read(request):
    [resource] = request.resource_metrics
    told["resource"] = {one.key: one.value.string_value for one in resource.resource.attributes}
    [scope] = resource.scope_metrics
    for metric in scope.metrics:
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        if kind in ("sum", "histogram"):
            assert data.aggregation_temporality == metrics.AGGREGATION_TEMPORALITY_CUMULATIVE, metric.name
        values = {}
        for point in data.data_points:
            assert key(point) not in values, (metric.name, key(point))
            if kind == "histogram":
                assert point.count == sum(point.bucket_counts), metric.name
                assert len(point.bucket_counts) == len(point.explicit_bounds) + 1, metric.name
                value = point.count
            else:
                value = getattr(point, point.WhichOneof("value"))
            if kind != "gauge":
                assert point.start_time_unix_nano <= point.time_unix_nano, metric.name
                if point.start_time_unix_nano not in told["starts"]:
                    told["starts"].append(point.start_time_unix_nano)
                if value < before.get((metric.name, key(point)), 0):
                    told["backwards"] += 1
                before[metric.name, key(point)] = value
            values[key(point)] = value
        assert kind != "sum" or data.is_monotonic, metric.name
        told[f"{kind}s"][metric.name] = values


class Handler(BaseHTTPRequestHandler):
    def answer(self, status, body, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/metrics", self.path
        assert self.headers["Content-Type"] == "application/x-protobuf", self.headers
        if told["refused"] == 0:
            told["refused"] += 1
            return self.answer(503, b"not yet", "text/plain")
        request = service.ExportMetricsServiceRequest()
        request.ParseFromString(body)
        try:
            read(request)
        except Exception as error:
            told["error"] = repr(error)
            raise
        told["requests"] += 1
        self.answer(200, service.ExportMetricsServiceResponse().SerializeToString(), "application/x-protobuf")

    def do_GET(self):
        self.answer(200, json.dumps(told).encode(), "application/json")

    def log_message(self, *words):
        pass


host, port = sys.argv[1].rsplit(":", 1)
HTTPServer((host, int(port)), Handler).serve_forever()
