"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: what is set for whom.

DescribeConfigs v1: sources and synonyms. v3: types and documentation. v4: flexible. AlterConfigs v2 and
IncrementalAlterConfigs v1: flexible.
"""

from __future__ import annotations

from protocol.schema import array, boolean, int8, int16, int32, request, response, string, struct


@request(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """Ask for settings of resources; null keys mean all of them."""

    @struct
    class DescribeConfigsResource:
        resource_type: int = int8()
        resource_name: str = string()
        configuration_keys: list[str] | None = array(string, nullable="0+")

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@response(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """Settings with their sources, defaults included (G23)."""

    @struct
    class DescribeConfigsResult:
        @struct
        class DescribeConfigsResourceResult:
            @struct
            class DescribeConfigsSynonym:
                name: str = string("1+")
                value: str | None = string("1+", nullable="0+")
                source: int = int8("1+")

            name: str = string()
            value: str | None = string(nullable="0+")
            read_only: bool = boolean()
            config_source: int = int8("1+", default=-1)
            is_sensitive: bool = boolean()
            synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+")
            config_type: int = int8("3+")
            documentation: str | None = string("3+", nullable="0+")

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


@request(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Replace all settings of resources: whatever is not named returns to its default."""

    @struct
    class AlterConfigsResource:
        @struct
        class AlterableConfig:
            name: str = string()
            value: str | None = string(nullable="0+")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[AlterableConfig] = array(AlterableConfig)

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@response(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """What came of it, a row a resource."""

    @struct
    class AlterConfigsResourceResponse:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@request(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Set (0), delete (1), append to (2) or subtract from (3) single settings."""

    @struct
    class AlterConfigsResource:
        @struct
        class AlterableConfig:
            name: str = string()
            config_operation: int = int8()
            value: str | None = string(nullable="0+")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[AlterableConfig] = array(AlterableConfig)

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@response(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """What came of it, a row a resource."""

    @struct
    class AlterConfigsResourceResponse:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@request(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """Ask what has settings. v0 is about client metrics only; no types mean all that are supported."""

    resource_types: list[int] = array(int8, "1+")


@response(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """Names and types of resources."""

    @struct
    class ConfigResource:
        resource_name: str = string()
        resource_type: int = int8("1+", default=16)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
