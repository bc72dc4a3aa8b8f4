"""Every endpoint of `divvy serve`, and every trap of the protocol: raw HTTP, and gRPC by grpcio with our proto files."""

import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

from server import Server, profile

FLEET = """
gpus: {kind: A100-80GB, count: 1}
models:
  - name: m
    profile: p.csv
    slo: 5s
    load: {rate: 10}
    serve:
      inputs: [{name: x, type: FP32, dims: [4]}]
      outputs: [{name: y, type: FP32, dims: [2]}]
  - name: half
    profile: p.csv
    slo: 5s
    load: {rate: 10}
    serve:
      inputs: [{name: x, type: FP16, dims: [2]}]
      outputs: [{name: y, type: FP16, dims: [2]}]
"""
REQUEST = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


def setUpModule():
    global server
    server = Server(FLEET, profile("m", 0.2) + profile("half", 0.2))
    server.await_event("ready")


def tearDownModule():
    assert server.end() == 0


def binary(head, *tensors):
    """A request with its tensors in binary: body and headers."""
    text = json.dumps(head).encode()
    return text + b"".join(tensors), {"Inference-Header-Content-Length": str(len(text))}


def with_binary(tensor, **more):
    return binary({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32",
                               "parameters": {"binary_data_size": len(tensor)}}], **more}, tensor)


TENSOR = struct.pack("<4f", 1, 2, 3, 4)


class Http(unittest.TestCase):
    def get(self, path, status=200):
        got, headers, body = server.ask("GET", path)
        self.assertEqual(got, status, body)
        return json.loads(body) if body else None

    def infer(self, request, status=200, model="m", headers=None):
        got, headers, body = server.infer(model, request, headers)
        self.assertEqual(got, status, body)
        return json.loads(body), headers

    def test_health_and_metadata(self):
        self.get("/v2/health/live")
        self.get("/v2/health/ready")
        self.assertEqual(self.get("/v2")["name"], "divvy")
        self.assertEqual(self.get("/v2/"), self.get("/v2"))
        self.assertIn("statistics", self.get("/v2")["extensions"])
        model = self.get("/v2/models/m")
        self.assertEqual(model, self.get("/v2/models/m/versions/1"))
        self.assertEqual(model["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}])
        self.assertEqual(model["versions"], ["1"])
        self.get("/v2/models/m/ready")
        config = self.get("/v2/models/m/config")
        self.assertEqual(config["max_batch_size"], 8)
        self.assertEqual(config["input"], [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}])
        index = json.loads(server.ask("POST", "/v2/repository/index")[2])
        self.assertEqual([(entry["name"], entry["state"]) for entry in index], [("m", "READY"), ("half", "READY")])
        self.assertEqual(server.ask("POST", "/v2/repository/index", b'{"ready": true}')[2], json.dumps(index, separators=(",", ":")).encode())
        self.assertEqual(server.ask("POST", "/v2/repository/index", b'{"ready": 3}')[0], 400)

    def test_unknown_things(self):
        for path in ("/v2/models/none", "/v2/models/m/versions/2", "/v2/models/none/ready", "/", "/v3", "/v2/models/m/versions/x",
                     "/v2/models/m/fly", "/v2/models/m/infer/more", "/v2/../etc/passwd", "/v2/models/..%2f..%2fetc"):
            status, _, body = server.ask("GET", path)
            self.assertEqual(status, 404, path)
            self.assertIn("error", json.loads(body))
        self.assertEqual(server.infer("none", REQUEST)[0], 404)
        for method, path in (("GET", "/v2/models/m/infer"), ("POST", "/v2/models/m"), ("PUT", "/v2/health/live")):
            self.assertEqual(server.ask(method, path)[0], 405, path)
        self.assertEqual(server.ask("POST", "/v2/repository/models/m/load")[0], 503)

    def test_json(self):
        answer, headers = self.infer({**REQUEST, "id": "é7"})
        self.assertEqual(headers["content-type"], "application/json")
        self.assertEqual((answer["model_name"], answer["model_version"], answer["id"]), ("m", "1", "é7"))
        self.assertEqual((answer["outputs"][0]["name"], answer["outputs"][0]["shape"]), ("y", [1, 2]))
        self.assertEqual(len(answer["outputs"][0]["data"]), 2)
        self.assertNotIn("id", self.infer(REQUEST)[0])
        nested = {"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": [[1, 2, 3, 4], [5, 6, 7, 8]]}]}
        self.assertEqual(self.infer(nested)[0]["outputs"][0]["shape"], [2, 2])

    def test_what_is_refused(self):
        def changed(**changes):
            return {"inputs": [{**REQUEST["inputs"][0], **changes}]}
        for request in (changed(name="z"), changed(datatype="FP64"), changed(datatype="fp32"), changed(shape=[1, 5]),
                        changed(shape=[4]), changed(shape=[-1, 4]), changed(shape=[0, 4]), changed(data=[1, 2]),
                        changed(data=["a", 2, 3, 4]), changed(shape=[2 ** 62, 4]), {}, {"inputs": []}, {"inputs": 3},
                        {**REQUEST, "outputs": [{"name": "none"}]}, {**REQUEST, "parameters": {"triton_x": 1}},
                        {**REQUEST, "parameters": {"priority": -1}}, {**REQUEST, "parameters": {"deadline_ms": "soon"}},
                        changed(shape=[9, 4], data=[0] * 36), changed(parameters={"binary_data_size": 16})):
            self.assertIn("error", self.infer(request, 400)[0], request)
        for body in (b"", b"{", b"[]", b"\xff\xfe", b"[" * 100000, b'{"inputs":[],"inputs":[]}', b"null"):
            self.assertEqual(server.ask("POST", "/v2/models/m/infer", body)[0], 400, body[:20])

    def test_half_floats_travel_in_binary_alone(self):
        request = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP16", "data": [1, 2]}]}
        self.infer(request, 400, model="half")
        body, headers = binary({"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP16",
                                            "parameters": {"binary_data_size": 4}}],
                                "parameters": {"binary_data_output": True}}, b"\0\x3c\0\x40")
        status, headers, body = server.ask("POST", "/v2/models/half/infer", body, headers)
        self.assertEqual(status, 200, body)
        self.assertEqual(len(body) - int(headers["inference-header-content-length"]), 4)

    def test_binary_tensors(self):
        body, headers = with_binary(TENSOR)
        status, answered, answer = server.ask("POST", "/v2/models/m/infer", body, headers)
        self.assertEqual(status, 200)
        self.assertEqual(len(json.loads(answer)["outputs"][0]["data"]), 2)
        body, headers = with_binary(TENSOR, outputs=[{"name": "y", "parameters": {"binary_data": True}}])
        status, answered, answer = server.ask("POST", "/v2/models/m/infer", body, headers)
        self.assertEqual(answered["content-type"], "application/octet-stream")
        length = int(answered["inference-header-content-length"])
        output = json.loads(answer[:length])["outputs"][0]
        self.assertEqual(output["parameters"]["binary_data_size"], 8)
        self.assertEqual(len(answer) - length, 8)

    def test_binary_lengths_must_fit(self):
        body, headers = with_binary(TENSOR)
        for wrong in (body + b"x", body[:-1]):
            self.assertEqual(server.ask("POST", "/v2/models/m/infer", wrong, headers)[0], 400)
        for length in ("-1", "x", "999999999999999999999", str(len(body) + 1), "3"):
            wrong = {"Inference-Header-Content-Length": length}
            self.assertEqual(server.ask("POST", "/v2/models/m/infer", body, wrong)[0], 400, length)

    def test_a_raw_request_needs_no_head(self):
        status, headers, body = server.ask("POST", "/v2/models/m/infer", TENSOR, {"Inference-Header-Content-Length": "0"})
        self.assertEqual(status, 200, body)
        self.assertEqual(len(body) - int(headers["inference-header-content-length"]), 8)

    def test_compression(self):
        plain, headers = with_binary(TENSOR)
        for name, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            status, _, body = server.ask("POST", "/v2/models/m/infer", pack(plain), {**headers, "Content-Encoding": name})
            self.assertEqual(status, 200, body)
            status, _, body = server.ask("POST", "/v2/models/m/infer", plain, {**headers, "Content-Encoding": name})
            self.assertEqual(status, 400)
        status, answered, _ = server.ask("POST", "/v2/models/m/infer", plain, {**headers, "Content-Encoding": "br"})
        self.assertEqual((status, answered["accept-encoding"]), (501, "gzip, deflate"))
        status, answered, body = server.ask("POST", "/v2/models/m/infer", plain, {**headers, "Accept-Encoding": "gzip"})
        self.assertEqual(answered["content-encoding"], "gzip")
        self.assertIn("outputs", json.loads(gzip.decompress(body)))

    def test_deadlines(self):
        status, headers, body = server.infer("m", {**REQUEST, "parameters": {"deadline_ms": 0.01}})
        self.assertEqual(status, 429, body)
        self.assertEqual(headers["divvy-shed-reason"], "hopeless")
        self.assertGreaterEqual(int(headers["retry-after"]), 1)
        for parameters in ({"timeout": 10}, {"slo_ms": 0}, {"deadline_ms": 9000, "slo_ms": 0.01}):
            self.infer({**REQUEST, "parameters": parameters}, 429)
        for parameters in ({"timeout": 0}, {"timeout": 4000000}, {"priority": 0}, {"priority": 1}, {"priority": 99}):
            self.infer({**REQUEST, "parameters": parameters})
        answer, _ = self.infer({**REQUEST, "parameters": {"divvy_timing": True, "slo_ms": 1500}})
        self.assertEqual(answer["parameters"]["divvy_deadline_us"], 1500000)
        self.assertIn("1g", answer["parameters"]["divvy_partition"])

    def test_trace_context_comes_back(self):
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        self.assertEqual(server.infer("m", REQUEST, {"traceparent": trace})[1]["traceparent"], trace)

    def test_statistics_and_metrics_count(self):
        before = server.figures()
        for _ in range(3):
            self.infer(REQUEST)
        self.infer({**REQUEST, "parameters": {"deadline_ms": 0.01}}, 429)
        after = server.figures()
        def grown(name):
            return after[name] - before.get(name, 0)
        self.assertEqual(grown('nv_inference_request_success{model="m",version="1"}'), 3)
        self.assertEqual(grown('divvy_slo_in_time_total{model="m",version="1"}'), 3)
        self.assertEqual(grown('divvy_shed_total{model="m",reason="hopeless"}'), 1)
        self.assertEqual(grown('nv_inference_exec_count{model="m",version="1"}'), 3)
        stats = json.loads(server.ask("GET", "/v2/models/m/stats")[2])["model_stats"][0]
        self.assertEqual(stats["name"], "m")
        self.assertGreaterEqual(stats["inference_stats"]["success"]["count"], 3)
        self.assertEqual(len(json.loads(server.ask("GET", "/v2/models/stats")[2])["model_stats"]), 2)

    def test_clients_that_end_their_side(self):
        body = json.dumps(REQUEST).encode()
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        status, headers, answer = server.raw(head + body, half_closes=True)
        self.assertEqual((status, headers["connection"]), (200, "close"), answer)
        self.assertIn("outputs", json.loads(answer))

    def test_targets_with_an_origin(self):
        for target in (f"http://127.0.0.1:{server.http}/v2/health/live", "HTTP://x/v2/models/m/ready?y"):
            self.assertEqual(server.ask("GET", target)[0], 200, target)
        self.assertEqual(server.ask("GET", "http://x/nothing")[0], 404)

    def test_bytes_that_are_no_http(self):
        for data in (b"\0\1\2\3\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 100000, b"POST /v2 HTTP/1.1\r\nContent-Length: 1\r\n"
                     b"Content-Length: 2\r\n\r\nab", b"GET /v2 HTTP/1.1\r\n folded: x\r\n\r\n"):
            try:
                status = server.raw(data)[0]
            except (ConnectionError, ValueError, IndexError):
                continue  # It hung up, which is an answer too.
            self.assertIn(status, (400, 431, 505), data[:30])
        status = server.raw(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")[0]
        self.assertEqual(status, 413)
        self.get("/v2/health/live")


try:
    import grpc
    from google.protobuf import message_factory  # noqa: F401
except ImportError:
    grpc = None


@unittest.skipIf(grpc is None, "python3-grpcio or python3-protobuf is not installed")
class Grpc(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        protos = os.path.join(os.environ["DIVVY_SOURCE_DIR"], "protos")
        subprocess.run(["protoc", f"-I{protos}", f"--python_out={cls.folder.name}", "inference.proto", "health.proto"], check=True)
        sys.path.insert(0, cls.folder.name)
        import health_pb2
        import inference_pb2
        cls.pb, cls.health = inference_pb2, health_pb2
        cls.channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc}")

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.folder.cleanup()

    def call(self, name, request, timeout=30, **options):
        answer = getattr(self.pb, name + "Response")
        method = self.channel.unary_unary(f"/inference.GRPCInferenceService/{name}",
                                          request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=answer.FromString)
        return method(request, timeout=timeout, **options)

    def fails(self, code, name, request, **options):
        with self.assertRaises(grpc.RpcError) as raised:
            self.call(name, request, **options)
        self.assertEqual(raised.exception.code(), code, raised.exception.details())
        return raised.exception.details()

    def request(self, model="m", **changes):
        request = self.pb.ModelInferRequest(model_name=model, id="9")
        tensor = request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        for name, value in changes.items():
            setattr(tensor, name, value)
        return request

    def raw(self, **changes):
        request = self.request(**changes)
        request.raw_input_contents.append(TENSOR)
        return request

    def test_health_and_metadata(self):
        pb = self.pb
        self.assertTrue(self.call("ServerLive", pb.ServerLiveRequest()).live)
        self.assertTrue(self.call("ServerReady", pb.ServerReadyRequest()).ready)
        self.assertEqual(self.call("ServerMetadata", pb.ServerMetadataRequest()).name, "divvy")
        self.assertTrue(self.call("ModelReady", pb.ModelReadyRequest(name="m")).ready)
        model = self.call("ModelMetadata", pb.ModelMetadataRequest(name="m", version="1"))
        self.assertEqual((model.inputs[0].name, list(model.inputs[0].shape)), ("x", [-1, 4]))
        config = self.call("ModelConfig", pb.ModelConfigRequest(name="m")).config
        self.assertEqual((config.name, config.max_batch_size), ("m", 8))
        self.assertEqual(len(self.call("RepositoryIndex", pb.RepositoryIndexRequest()).models), 2)
        self.assertEqual(self.call("ModelStatistics", pb.ModelStatisticsRequest(name="m")).model_stats[0].name, "m")
        check = self.channel.unary_unary("/grpc.health.v1.Health/Check",
                                         request_serializer=lambda m: m.SerializeToString(),
                                         response_deserializer=self.health.HealthCheckResponse.FromString)
        self.assertEqual(check(self.health.HealthCheckRequest(), timeout=30).status, 1)
        self.fails(grpc.StatusCode.NOT_FOUND, "ModelMetadata", pb.ModelMetadataRequest(name="none"))
        self.fails(grpc.StatusCode.UNAVAILABLE, "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="m"))

    def test_raw_and_typed_contents(self):
        typed = self.request()
        typed.inputs[0].contents.fp32_contents.extend([1, 2, 3, 4])
        answers = [self.call("ModelInfer", request) for request in (self.raw(), typed)]
        for answer in answers:
            self.assertEqual((answer.model_name, answer.id), ("m", "9"))
            self.assertEqual(list(answer.outputs[0].shape), [1, 2])
            self.assertEqual(len(answer.raw_output_contents[0]), 8)
            self.assertFalse(answer.outputs[0].HasField("contents"))
        self.assertEqual(answers[0].raw_output_contents, answers[1].raw_output_contents)

    def test_what_is_refused(self):
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        both = self.raw()
        both.inputs[0].contents.fp32_contents.append(1)
        self.fails(invalid, "ModelInfer", both)
        self.fails(invalid, "ModelInfer", self.request())
        self.fails(invalid, "ModelInfer", self.raw(datatype="FP64"))
        more = self.raw()
        more.raw_input_contents.append(b"x")
        self.fails(invalid, "ModelInfer", more)
        half = self.request("half", datatype="FP16")
        half.inputs[0].shape[:] = [1, 2]
        half.inputs[0].contents.fp32_contents.extend([1, 2])
        self.fails(invalid, "ModelInfer", half)
        self.fails(grpc.StatusCode.NOT_FOUND, "ModelInfer", self.raw(model="none"))

    def test_deadlines(self):
        request = self.raw()
        request.parameters["deadline_ms"].double_param = 0.01
        self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "ModelInfer", request)
        request = self.raw()
        request.parameters["divvy_timing"].bool_param = True
        answer = self.call("ModelInfer", request, timeout=2)
        self.assertLessEqual(answer.parameters["divvy_deadline_us"].int64_param, 2500000)

    def test_compressed_messages(self):
        self.assertEqual(self.call("ModelInfer", self.raw(), compression=grpc.Compression.Gzip).id, "9")

    def test_streams(self):
        stream = self.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer",
                                            request_serializer=lambda m: m.SerializeToString(),
                                            response_deserializer=self.pb.ModelStreamInferResponse.FromString)
        requests = [self.raw() for _ in range(5)] + [self.raw(model="none")]
        for i, request in enumerate(requests):
            request.id = str(i)
        answers = list(stream(iter(requests), timeout=30))
        self.assertEqual({answer.infer_response.id for answer in answers if not answer.error_message}, set("01234"))
        self.assertEqual(sum("none" in answer.error_message for answer in answers), 1)

    def test_a_unary_call_takes_one_message(self):
        call = self.channel.stream_stream("/inference.GRPCInferenceService/ModelInfer",
                                          request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=lambda data: data)
        for requests in ([], [self.raw(), self.raw()], [self.raw(), self.raw(model="none"), self.raw()]):
            try:
                # The first may be answered before the second comes.
                self.assertEqual(len(list(call(iter(requests), timeout=30))), 1)
                self.assertGreater(len(requests), 1)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        request = self.raw()
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        self.assertEqual(self.call("ModelInfer", request).id, "9")

    def test_unknown_methods(self):
        for path in ("/inference.GRPCInferenceService/Fly", "/other/Thing"):
            with self.assertRaises(grpc.RpcError) as raised:
                self.channel.unary_unary(path)(b"", timeout=30)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        with self.assertRaises(grpc.RpcError) as raised:
            self.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\xff\xff\xff", timeout=30)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)


if __name__ == "__main__":
    unittest.main()
