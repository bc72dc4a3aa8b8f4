#!/usr/bin/env python3
"""Asks a model over gRPC, with a deadline.

Needs grpcio and protobuf; the messages come from protos/inference.proto. Python looks for them
beside this file, so it is told where they are:
    protoc -Iprotos --python_out=. inference.proto
    PYTHONPATH=. examples/clients/infer_grpc.py 127.0.0.1:8001 MODEL
"""

import struct
import sys

import grpc
import inference_pb2 as pb

address, model = sys.argv[1], sys.argv[2]
with grpc.insecure_channel(address) as channel:
    def method(name, answer):
        return channel.unary_unary(f"/inference.GRPCInferenceService/{name}",
                                   request_serializer=lambda message: message.SerializeToString(),
                                   response_deserializer=answer.FromString)

    metadata = method("ModelMetadata", pb.ModelMetadataResponse)(pb.ModelMetadataRequest(name=model))
    tensor = metadata.inputs[0]
    shape = [1 if size < 0 else size for size in tensor.shape]
    count = 1
    for size in shape:
        count *= size
    request = pb.ModelInferRequest(model_name=model, id="example")
    request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=shape)
    request.raw_input_contents.append(struct.pack(f"<{count}f", *([0.5] * count)))  # FP32 alone, to be short.
    request.parameters["divvy_timing"].bool_param = True
    answer = method("ModelInfer", pb.ModelInferResponse)(request, timeout=0.5)
    print(answer.outputs[0].name, list(answer.outputs[0].shape), answer.raw_output_contents[0][:8].hex())
    print("waited", answer.parameters["divvy_queue_us"].int64_param, "us, ran",
          answer.parameters["divvy_compute_us"].int64_param, "us on", answer.parameters["divvy_partition"].string_param)
